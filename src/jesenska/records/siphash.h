/* SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012; the long output is that of the authors' reference).
   It has a secret key of 16 bytes. Without the key it is not possible to make two inputs with the same hash. */
#ifndef JESENSKA_SIPHASH_H
#define JESENSKA_SIPHASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint64_t jesenska_sip_rotate(uint64_t value, int bits)
{
    return value << bits | value >> (64 - bits);
}

static inline void jesenska_sip_rounds(uint64_t state[4], int count)
{
    uint64_t a = state[0], b = state[1], c = state[2], d = state[3];
    while (count-- > 0) {
        a += b;
        c += d;
        b = jesenska_sip_rotate(b, 13) ^ a;
        d = jesenska_sip_rotate(d, 16) ^ c;
        a = jesenska_sip_rotate(a, 32);
        c += b;
        a += d;
        b = jesenska_sip_rotate(b, 17) ^ c;
        d = jesenska_sip_rotate(d, 21) ^ a;
        c = jesenska_sip_rotate(c, 32);
    }
    state[0] = a;
    state[1] = b;
    state[2] = c;
    state[3] = d;
}

static inline uint64_t jesenska_sip_little(const uint8_t *data, size_t size)
{
    uint64_t value = 0;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (size == 8) {
        memcpy(&value, data, 8);
        return value;
    }
#endif
    while (size-- > 0)
        value = value << 8 | data[size];
    return value;
}

static inline void jesenska_siphash128(const uint64_t secret[2], const uint8_t *data, size_t size, uint64_t hash[2])
{
    uint64_t state[4] = {
        secret[0] ^ 0x736f6d6570736575u, secret[1] ^ 0x646f72616e646f6du ^ 0xee, secret[0] ^ 0x6c7967656e657261u, secret[1] ^ 0x7465646279746573u,
    };
    const uint8_t *end = data + (size & ~(size_t)7);
    uint64_t word;
    for (; data < end; data += 8) {
        word = jesenska_sip_little(data, 8);
        state[3] ^= word;
        jesenska_sip_rounds(state, 2);
        state[0] ^= word;
    }
    word = (uint64_t)size << 56 | jesenska_sip_little(data, size & 7);
    state[3] ^= word;
    jesenska_sip_rounds(state, 2);
    state[0] ^= word;
    state[2] ^= 0xee;
    jesenska_sip_rounds(state, 4);
    hash[0] = state[0] ^ state[1] ^ state[2] ^ state[3];
    state[1] ^= 0xdd;
    jesenska_sip_rounds(state, 4);
    hash[1] = state[0] ^ state[1] ^ state[2] ^ state[3];
}

/* Returns the place in a table, from 0 to count - 1, for a hash. */
static inline uint64_t jesenska_place(uint64_t number, uint64_t count)
{
    return (uint64_t)((unsigned __int128)number * count >> 64);
}

#endif
