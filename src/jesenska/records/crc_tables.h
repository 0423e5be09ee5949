/* A reflected CRC of 32 bits, computed with eight tables at once, for any polynomial. crc32.h and crc32c.h define the polynomials and the tables. */

#ifndef JESENSKA_CRC_TABLES_H
#define JESENSKA_CRC_TABLES_H

#include <stddef.h>
#include <stdint.h>

static void jesenska_fill_crc_tables(uint32_t table[8][256], uint32_t polynomial) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (polynomial & (0u - (crc & 1)));
        table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int row = 1; row < 8; row++) {
            uint32_t before = table[row - 1][byte];
            table[row][byte] = (before >> 8) ^ table[0][before & 0xff];
        }
}

static inline uint32_t jesenska_crc_by_eight(const uint32_t table[8][256], uint32_t crc, const unsigned char *data, size_t size) {
    while (size >= 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24);
        crc = table[7][low & 0xff] ^ table[6][low >> 8 & 0xff] ^ table[5][low >> 16 & 0xff] ^ table[4][low >> 24] ^ table[3][data[4]] ^
              table[2][data[5]] ^ table[1][data[6]] ^ table[0][data[7]];
        data += 8;
        size -= 8;
    }
    while (size--)
        crc = (crc >> 8) ^ table[0][(crc ^ *data++) & 0xff];
    return crc;
}

#endif
