/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy's .npz files are ZIP archives (APPNOTE.TXT 6.3) of .npy files, stored or deflated. The
 * central directory at the end lists the files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "data/arrays.h"

#define END_BYTES 22
#define COMMENT_LIMIT 65535
#define ENTRY_BYTES 46 /* of the central directory, before the name */
#define LOCAL_BYTES 30 /* before a file, without name and extra */
#define ENCRYPTED 1
#define STORED 0
#define DEFLATED 8
#define DEFLATE_RATIO_LIMIT 1032 /* deflate reaches no more */

typedef struct zip_entry {
    const uint8_t *name;
    size_t name_bytes;
    unsigned flags, method;
    uint32_t crc;
    uint64_t packed, size, offset;
} zip_entry;

typedef struct zip_reader {
    const uint8_t *data;
    size_t bytes;
    size_t next, end; /* of the central directory */
} zip_reader;

static uint64_t number_at(const uint8_t *data, int bytes) {
    uint64_t number = 0;
    for (int i = bytes - 1; i >= 0; i--)
        number = number << 8 | data[i];
    return number;
}

/* Finds the central directory; false: there is none. */
static bool zip_begin(zip_reader *zip, const yoke_file_mapping *file) {
    *zip = (zip_reader){.data = file->data, .bytes = file->bytes};
    size_t lowest =
        zip->bytes > END_BYTES + COMMENT_LIMIT ? zip->bytes - END_BYTES - COMMENT_LIMIT : 0;
    for (size_t at = zip->bytes; at >= lowest + END_BYTES; at--) {
        const uint8_t *end = zip->data + at - END_BYTES;
        if (memcmp(end, "PK\5\6", 4) != 0) continue;
        uint64_t size = number_at(end + 12, 4), offset = number_at(end + 16, 4);
        const uint8_t *locator = at >= END_BYTES + 20 ? end - 20 : NULL;
        if (offset == UINT32_MAX && locator != NULL && memcmp(locator, "PK\6\7", 4) == 0) {
            uint64_t record = number_at(locator + 8, 8);
            if (zip->bytes < 56 || record > zip->bytes - 56) return false;
            size = number_at(zip->data + record + 40, 8);
            offset = number_at(zip->data + record + 48, 8);
        }
        if (offset > zip->bytes || size > zip->bytes - offset) return false;
        zip->next = (size_t)offset;
        zip->end = (size_t)(offset + size);
        return true;
    }
    return false;
}

/* ZIP64 moves numbers that need more than 32 bits into an extra field, in this order. */
static void read_zip64(zip_entry *entry, const uint8_t *extra, size_t bytes) {
    while (bytes >= 4) {
        size_t length = number_at(extra + 2, 2);
        bool wide = number_at(extra, 2) == 1;
        extra += 4;
        bytes -= 4;
        if (length > bytes) return;
        uint64_t *const fields[] = {&entry->size, &entry->packed, &entry->offset};
        for (size_t i = 0, at = 0; wide && i < 3 && at + 8 <= length; i++) {
            if (*fields[i] != UINT32_MAX) continue;
            *fields[i] = number_at(extra + at, 8);
            at += 8;
        }
        extra += length;
        bytes -= length;
    }
}

static bool zip_next(zip_reader *zip, zip_entry *entry) {
    if (zip->end - zip->next < ENTRY_BYTES) return false;
    const uint8_t *at = zip->data + zip->next;
    if (memcmp(at, "PK\1\2", 4) != 0) return false;
    *entry = (zip_entry){.flags = (unsigned)number_at(at + 8, 2),
                         .method = (unsigned)number_at(at + 10, 2),
                         .crc = (uint32_t)number_at(at + 16, 4),
                         .packed = number_at(at + 20, 4),
                         .size = number_at(at + 24, 4),
                         .offset = number_at(at + 42, 4),
                         .name = at + ENTRY_BYTES,
                         .name_bytes = number_at(at + 28, 2)};
    size_t extra = number_at(at + 30, 2), comment = number_at(at + 32, 2);
    size_t whole = ENTRY_BYTES + entry->name_bytes + extra + comment;
    if (whole > zip->end - zip->next) return false;
    read_zip64(entry, entry->name + entry->name_bytes, extra);
    zip->next += whole;
    return true;
}

static bool has_name(const zip_entry *entry, const char *name) {
    size_t length = strlen(name);
    return entry->name_bytes == length + 4 && memcmp(entry->name, name, length) == 0 &&
           memcmp(entry->name + length, ".npy", 4) == 0;
}

static yoke_status check_sum(const char *path, const zip_entry *entry, const uint8_t *data) {
    if (crc32_z(0, data, (z_size_t)entry->size) == entry->crc) return YOKE_OK;
    return FAIL(YOKE_ERROR_DATA,
                "%s: %.*s is damaged: its checksum differs; copy or save the file again", path,
                (int)entry->name_bytes, (const char *)entry->name);
}

/* packed: [entry->packed]. */
static yoke_status inflate_entry(yoke_npz_member *member, const char *path, const zip_entry *entry,
                                 const uint8_t *packed) {
    if (entry->packed > UINT32_MAX || entry->size > UINT32_MAX ||
        entry->size / DEFLATE_RATIO_LIMIT > entry->packed)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: %.*s claims %llu bytes in %llu packed ones, more than deflate holds or "
                    "4 GiB; numpy.savez writes it without packing",
                    path, (int)entry->name_bytes, (const char *)entry->name,
                    (unsigned long long)entry->size, (unsigned long long)entry->packed);
    member->inflated = yoke_malloc(entry->size + 1);
    if (member->inflated == NULL) return FAIL_MEMORY(entry->size, path);
    z_stream stream = {.next_in = (Bytef *)packed,
                       .avail_in = (uInt)entry->packed,
                       .next_out = member->inflated,
                       .avail_out = (uInt)entry->size};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return FAIL_MEMORY(entry->size, "inflating");
    int code = inflate(&stream, Z_FINISH);
    inflateEnd(&stream);
    if (code != Z_STREAM_END || stream.avail_out != 0)
        return FAIL(YOKE_ERROR_DATA, "%s: %.*s is damaged; copy or save the file again", path,
                    (int)entry->name_bytes, (const char *)entry->name);
    member->data = member->inflated;
    member->bytes = entry->size;
    return check_sum(path, entry, member->data);
}

/* Where the bytes of a file are that Yoke can read. */
static yoke_status locate(const uint8_t **packed, const char *path, const yoke_file_mapping *zip,
                          const zip_entry *entry) {
    int length = (int)entry->name_bytes;
    const char *name = (const char *)entry->name;
    if (entry->flags & ENCRYPTED)
        return FAIL(YOKE_ERROR_DATA, "%s: %.*s is encrypted; save it with numpy.savez", path,
                    length, name);
    if (entry->method != STORED && entry->method != DEFLATED)
        return FAIL(YOKE_ERROR_DATA,
                    "%s: %.*s is packed by method %u, expected 0 (stored) or 8 (deflate); "
                    "numpy.savez and savez_compressed write these",
                    path, length, name, entry->method);
    bool fits = zip->bytes >= LOCAL_BYTES && entry->offset <= zip->bytes - LOCAL_BYTES;
    const uint8_t *local = zip->data + (fits ? entry->offset : 0);
    size_t head = fits ? LOCAL_BYTES + number_at(local + 26, 2) + number_at(local + 28, 2) : 0;
    size_t rest = fits ? zip->bytes - (size_t)entry->offset : 0;
    if (head > rest || entry->packed > rest - head || !fits || memcmp(local, "PK\3\4", 4) != 0 ||
        (entry->method == STORED && entry->size != entry->packed))
        return FAIL(YOKE_ERROR_DATA,
                    "%s: %.*s at byte %llu of %zu is not there as the directory says; copy or save "
                    "the file again",
                    path, length, name, (unsigned long long)entry->offset, zip->bytes);
    *packed = local + head;
    return YOKE_OK;
}

static yoke_status take_entry(yoke_npz_member *member, const char *path,
                              const yoke_file_mapping *zip, const zip_entry *entry) {
    const uint8_t *packed = NULL;
    TRY(locate(&packed, path, zip, entry));
    if (entry->method == DEFLATED) return inflate_entry(member, path, entry, packed);
    member->data = packed;
    member->bytes = (size_t)entry->size;
    return check_sum(path, entry, member->data);
}

static yoke_status find_entry(const char *path, const yoke_file_mapping *file, const char *name,
                              zip_entry *entry, bool *has) {
    zip_reader zip;
    *has = false;
    if (!zip_begin(&zip, file))
        return FAIL(YOKE_ERROR_DATA,
                    "%s: no .npz file, or cut off: no directory of a ZIP archive at its end; "
                    "numpy.savez writes one",
                    path);
    while (!*has && zip_next(&zip, entry))
        *has = has_name(entry, name);
    return YOKE_OK;
}

yoke_status yoke_npz_has(const char *path, const yoke_file_mapping *file, const char *name,
                         bool *has) {
    zip_entry entry;
    return find_entry(path, file, name, &entry, has);
}

yoke_status yoke_npz_find(yoke_npz_member *member, const char *path, const yoke_file_mapping *file,
                          const char *name) {
    zip_entry entry;
    bool has;
    *member = (yoke_npz_member){0};
    TRY(find_entry(path, file, name, &entry, &has));
    yoke_status status = has ? take_entry(member, path, file, &entry) : YOKE_OK;
    if (status == YOKE_OK) return YOKE_OK;
    yoke_free(member->inflated);
    *member = (yoke_npz_member){0};
    return status;
}

/* Unpacks as much as fits; false: it is damaged, which shows when all of it is unpacked. */
static bool inflate_head(uint8_t *head, const zip_entry *entry, const uint8_t *packed) {
    z_stream stream = {.next_in = (Bytef *)packed,
                       .avail_in = (uInt)(entry->packed < UINT32_MAX ? entry->packed : UINT32_MAX),
                       .next_out = head,
                       .avail_out = YOKE_NPZ_HEAD};
    if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return false;
    int code = inflate(&stream, Z_SYNC_FLUSH);
    inflateEnd(&stream);
    return code == Z_OK || code == Z_STREAM_END;
}

yoke_status yoke_npz_look(uint8_t head[YOKE_NPZ_HEAD], size_t *bytes, const char *path,
                          const yoke_file_mapping *file, const char *name) {
    zip_entry entry;
    bool has;
    const uint8_t *packed = NULL;
    *bytes = 0;
    memset(head, 0, YOKE_NPZ_HEAD);
    TRY(find_entry(path, file, name, &entry, &has));
    if (!has || entry.method != DEFLATED) return YOKE_OK;
    TRY(locate(&packed, path, file, &entry));
    if (inflate_head(head, &entry, packed)) *bytes = (size_t)entry.size;
    return YOKE_OK;
}

void yoke_npz_list(const yoke_file_mapping *file, char *text, size_t size) {
    zip_reader zip;
    zip_entry entry;
    size_t used = 0;
    text[0] = '\0';
    if (!zip_begin(&zip, file)) return;
    while (zip_next(&zip, &entry)) {
        size_t length = entry.name_bytes;
        if (length > 4 && memcmp(entry.name + length - 4, ".npy", 4) == 0) length -= 4;
        if (used + length + 3 > size) return;
        used += (size_t)snprintf(text + used, size - used, "%s%.*s", used > 0 ? ", " : "",
                                 (int)length, (const char *)entry.name);
    }
}
