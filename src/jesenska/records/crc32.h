/* CRC-32 (the one of zlib and of message sets: reflected polynomial 0xedb88320), by eight tables at once. Processors have no instruction for it that every
 * machine of their architecture has. */

#ifndef JESENSKA_CRC32_H
#define JESENSKA_CRC32_H

#include "crc_tables.h"

static uint32_t jesenska_crc32_table[8][256];

static void jesenska_crc32_prepare(void) { jesenska_fill_crc_tables(jesenska_crc32_table, 0xedb88320u); }

static uint32_t jesenska_crc32(const uint8_t *data, size_t size) {
    return ~jesenska_crc_by_eight((const uint32_t(*)[256])jesenska_crc32_table, 0xffffffffu, data, size);
}

#endif
