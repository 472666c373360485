/* SPDX-License-Identifier: Apache-2.0 */
/** @file
 * Status codes, the text of the last error, and the version.
 */
#ifndef YOKE_STATUS_H
#define YOKE_STATUS_H

/** Marks a function that the library exports. */
#if defined(YOKE_SHARED) && defined(__GNUC__)
#define YOKE_API __attribute__((visibility("default")))
#else
#define YOKE_API
#endif

/** Marks a function, field or enumerator that goes away in a later version: `text` says what to use
 * in its place, and the compiler shows it. Nothing where the compiler knows no such attribute.
 *
 *     YOKE_DEPRECATED("use yoke_b") YOKE_API yoke_status yoke_a(void);
 */
#if defined(YOKE_SHARED) /* the library itself, which goes on serving it */
#define YOKE_DEPRECATED(text)
#elif defined(__GNUC__)
#define YOKE_DEPRECATED(text) __attribute__((deprecated(text)))
#elif (defined(__cplusplus) && __cplusplus >= 201402L) ||                                          \
    (defined(__STDC_VERSION__) && __STDC_VERSION__ > 201710L)
#define YOKE_DEPRECATED(text) [[deprecated(text)]]
#else
#define YOKE_DEPRECATED(text)
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Every status, one row each: enumerator, meaning, exit code of the `yoke` tool.
 *
 * @param X  A macro of three parameters; the table applies it to each row.
 */
#define YOKE_STATUS_TABLE(X)                                                                       \
    X(YOKE_OK, "no error", 0)                                                                      \
    X(YOKE_ERROR_ARGUMENT, "an argument is invalid, or two contradict each other", 2)              \
    X(YOKE_ERROR_DATA, "the content of a file is invalid", 65)                                     \
    X(YOKE_ERROR_MISSING, "an input is missing", 66)                                               \
    X(YOKE_ERROR_DEVICE, "a device or its backend is not available", 69)                           \
    X(YOKE_ERROR_INTERNAL, "a bug in Yoke", 70)                                                    \
    X(YOKE_ERROR_SYSTEM, "the operating system or a driver refused a call", 71)                    \
    X(YOKE_ERROR_MEMORY, "out of memory", 71)                                                      \
    X(YOKE_ERROR_IO, "reading or writing failed", 74)                                              \
    X(YOKE_ERROR_NUMERIC, "a value is not finite", 1)                                              \
    X(YOKE_ERROR_CANCELLED, "the caller stopped the work, or another worker failed first", 130)    \
    X(YOKE_ERROR_TIMEOUT, "another process did not arrive before the deadline", 75)                \
    X(YOKE_ERROR_PEER, "the processes of a run disagree, or one of them has left", 76)

/** What a call returns. The documentation of a call names errors without their prefix:
 * ARGUMENT stands for YOKE_ERROR_ARGUMENT. Any call may also return MEMORY, SYSTEM or DEVICE. */
typedef enum yoke_status {
#define YOKE_STATUS_ENUMERATOR(name, text, exit_code) name, /**< text */
    YOKE_STATUS_TABLE(YOKE_STATUS_ENUMERATOR)
#undef YOKE_STATUS_ENUMERATOR
} yoke_status;

/** The text of the last error on the calling thread: the fact, the offending value, the remedy.
 *
 * @return Borrowed, until the next failing call on this thread; "" before the first failure.
 */
YOKE_API const char *yoke_last_error(void);

/** The name of a status.
 *
 * @param status  Any value.
 * @return "YOKE_ERROR_DATA", for example; never NULL.
 */
YOKE_API const char *yoke_status_name(yoke_status status);

/** The exit code that the `yoke` tool uses for a status.
 *
 * @param status  Any value.
 * @return The third column of YOKE_STATUS_TABLE.
 */
YOKE_API int yoke_status_exit_code(yoke_status status);

#define YOKE_VERSION_MAJOR 0 /**< Grows when a released interface breaks. */
#define YOKE_VERSION_MINOR 1 /**< Grows with features; while MAJOR is 0, also when one breaks. */
#define YOKE_VERSION_PATCH 0 /**< Grows with fixes. */

/** A version as one integer, for comparisons. */
#define YOKE_VERSION_CODE(major, minor, patch) ((major)*10000 + (minor)*100 + (patch))
/** The version of this header: `#if YOKE_VERSION >= YOKE_VERSION_CODE(0, 2, 0)`. */
#define YOKE_VERSION YOKE_VERSION_CODE(YOKE_VERSION_MAJOR, YOKE_VERSION_MINOR, YOKE_VERSION_PATCH)

/** Sets the calling thread's error text and returns `status`, for callbacks of the host program:
 * return yoke_error_raise(YOKE_ERROR_DATA, "row %zu has no label", row); The library's call then
 * fails with that status and text, behind the name of the callback.
 *
 * @param status  Any but YOKE_OK.
 * @param format  As printf's. NULL: no text.
 * @return `status`.
 */
YOKE_API yoke_status yoke_error_raise(yoke_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/** In C, a struct of options where a call takes one: struct_size, the fields named, and zeros:
 * yoke_linear(model, x, YOKE_OPTIONS(yoke_linear_options, .name = "fc", .out_features = 10)) */
#ifndef __cplusplus
#define YOKE_OPTIONS(type, ...) (&(const type){.struct_size = sizeof(type), __VA_ARGS__})
#endif

/** The version of the library, which may differ from that of this header.
 *
 * @return "0.1.0", for example.
 */
YOKE_API const char *yoke_version(void);

#ifdef __cplusplus
}
#endif

#endif
