/* CRC32C (Castagnoli, reflected polynomial 0x82f63b78) for the compiled record codec: by the processor's own instruction where it has one,
 * which is asked at import, else by eight tables at once. The instruction is compiled into functions of its own, so the module runs on
 * every processor of its architecture. */

#ifndef JESENSKA_CRC32C_H
#define JESENSKA_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static uint32_t jesenska_crc_table[8][256];

static void jesenska_crc_make_tables(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0x82f63b78u & (0u - (crc & 1)));
        jesenska_crc_table[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++)
        for (int row = 1; row < 8; row++) {
            uint32_t before = jesenska_crc_table[row - 1][byte];
            jesenska_crc_table[row][byte] = (before >> 8) ^ jesenska_crc_table[0][before & 0xff];
        }
}

static uint32_t jesenska_crc_tables(uint32_t crc, const unsigned char *data, size_t size) {
    const uint32_t(*table)[256] = (const uint32_t(*)[256])jesenska_crc_table;
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

typedef uint32_t (*jesenska_crc_function)(uint32_t, const unsigned char *, size_t);
static jesenska_crc_function jesenska_crc_chosen = jesenska_crc_tables;

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#include <nmmintrin.h>

__attribute__((target("sse4.2"))) static uint32_t jesenska_crc_hardware(uint32_t crc, const unsigned char *data, size_t size) {
    uint64_t wide = crc;
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = _mm_crc32_u64(wide, word);
        data += 8;
        size -= 8;
    }
    crc = (uint32_t)wide;
    while (size--)
        crc = _mm_crc32_u8(crc, *data++);
    return crc;
}

static int jesenska_crc_has_hardware(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}

#elif defined(__aarch64__) && (defined(__GNUC__) || defined(__clang__))

static uint32_t jesenska_crc_hardware(uint32_t crc, const unsigned char *data, size_t size) {
    while (size >= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(crc) : "r"(word));
        data += 8;
        size -= 8;
    }
    while (size--) {
        uint32_t byte = *data++;
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"(byte));
    }
    return crc;
}

#if defined(__APPLE__)
static int jesenska_crc_has_hardware(void) { return 1; } /* every Apple processor of this architecture has it */
#elif defined(__linux__)
#include <sys/auxv.h>
static int jesenska_crc_has_hardware(void) { return (getauxval(AT_HWCAP) & (1ul << 7)) != 0; } /* HWCAP_CRC32 */
#else
static int jesenska_crc_has_hardware(void) { return 0; }
#endif

#else

static uint32_t jesenska_crc_hardware(uint32_t crc, const unsigned char *data, size_t size) { return jesenska_crc_tables(crc, data, size); }
static int jesenska_crc_has_hardware(void) { return 0; }

#endif

static void jesenska_crc_prepare(void) {
    jesenska_crc_make_tables();
    if (jesenska_crc_has_hardware())
        jesenska_crc_chosen = jesenska_crc_hardware;
}

static uint32_t jesenska_crc32c(const unsigned char *data, size_t size) {
    return ~jesenska_crc_chosen(0xffffffffu, data, size);
}

static uint32_t jesenska_crc32c_by_tables(const unsigned char *data, size_t size) {
    return ~jesenska_crc_tables(0xffffffffu, data, size);
}

#endif
