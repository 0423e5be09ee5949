/* CRC-32 (the one of zlib and of message sets: reflected polynomial 0xedb88320), by eight tables at once. Processors have no instruction for it that every
 * machine of their architecture has. */

#ifndef JESENSKA_CRC32_H
#define JESENSKA_CRC32_H

#include <stddef.h>
#include <stdint.h>

static uint32_t jesenska_crc32_table[8][256];

static void jesenska_crc32_prepare(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0xedb88320u & (0u - (crc & 1)));
        jesenska_crc32_table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int row = 1; row < 8; row++) {
            uint32_t before = jesenska_crc32_table[row - 1][byte];
            jesenska_crc32_table[row][byte] = (before >> 8) ^ jesenska_crc32_table[0][before & 0xff];
        }
}

static uint32_t jesenska_crc32(const uint8_t *data, size_t size) {
    const uint32_t(*table)[256] = (const uint32_t(*)[256])jesenska_crc32_table;
    uint32_t crc = 0xffffffffu;
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^ table[3][data[4]] ^
              table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size--)
        crc = (crc >> 8) ^ table[0][(crc ^ *data++) & 0xff];
    return ~crc;
}

#endif
