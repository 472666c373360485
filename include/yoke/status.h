/* What every call of Yoke answers, and where the words for a failure are. */
#ifndef YOKE_STATUS_H
#define YOKE_STATUS_H

#if defined(YOKE_SHARED) && defined(__GNUC__)
#define YOKE_API __attribute__((visibility("default")))
#else
#define YOKE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* One row an error: enumerator, text, exit code of the tool. */
#define YOKE_STATUS_TABLE(X)                                                                       \
    X(YOKE_OK, "no error", 0)                                                                      \
    X(YOKE_ERROR_ARGUMENT, "the caller asked for something impossible", 2)                         \
    X(YOKE_ERROR_DATA, "a file's content is not what it should be", 65)                            \
    X(YOKE_ERROR_MISSING, "an input is missing", 66)                                               \
    X(YOKE_ERROR_DEVICE, "a device or its backend is not available", 69)                           \
    X(YOKE_ERROR_INTERNAL, "a fault of Yoke itself", 70)                                           \
    X(YOKE_ERROR_SYSTEM, "the operating system or a driver refused", 71)                           \
    X(YOKE_ERROR_MEMORY, "out of memory", 71)                                                      \
    X(YOKE_ERROR_IO, "reading or writing failed", 74)                                              \
    X(YOKE_ERROR_NUMERIC, "a value is not finite", 1)                                              \
    X(YOKE_ERROR_CANCELLED, "stopped because a companion failed or the caller asked", 130)         \
    X(YOKE_ERROR_TIMEOUT, "somebody who was waited for did not come in time", 75)                  \
    X(YOKE_ERROR_PEER, "the processes of a run disagree, or one of them is gone", 76)

typedef enum yoke_status {
#define YOKE_STATUS_ENUMERATOR(name, text, exit_code) name,
    YOKE_STATUS_TABLE(YOKE_STATUS_ENUMERATOR)
#undef YOKE_STATUS_ENUMERATOR
} yoke_status;

/* The text of the last error on the calling thread: fact, offending value, what to do. Borrowed;
 * valid until the next failing call on this thread. Empty when nothing has failed yet. */
YOKE_API const char *yoke_last_error(void);

/* "YOKE_ERROR_DATA" for a status; never NULL. */
YOKE_API const char *yoke_status_name(yoke_status status);

/* The exit code the yoke tool uses for a status. */
YOKE_API int yoke_status_exit_code(yoke_status status);

#define YOKE_VERSION_MAJOR 0
#define YOKE_VERSION_MINOR 1
#define YOKE_VERSION_PATCH 0

/* "0.1.0". */
YOKE_API const char *yoke_version(void);

#ifdef __cplusplus
}
#endif

#endif
