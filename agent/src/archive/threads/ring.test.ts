import { expect, test } from '@jest/globals';
import { BLOCK_BYTES } from '../format/layout.ts';
import { createRingMemory, giveRingMemory, Ring, type RingUse, takeRingMemory } from './ring.ts';

const USES: [RingUse, boolean, { slots: number; raws: number }][] = [
  ['plain', false, { slots: 4, raws: 4 }],
  ['plain', true, { slots: 3, raws: 3 }],
  ['compressing', false, { slots: 3, raws: 4 }],
  ['compressing', true, { slots: 2, raws: 3 }],
  ['decompressing', false, { slots: 3, raws: 3 }],
];

test.each(USES)('no two buffers of a run that is %s overlap (lean: %p)', (use, isLean, counts) => {
  const ring = new Ring(createRingMemory(3));
  ring.reset(use, isLean);
  expect({ slots: ring.slots, raws: ring.raws }).toEqual(counts);
  const raws = Array.from({ length: counts.raws }, (_, index) => ring.raw(index));
  const isPlain = use === 'plain';
  const compressed = Array.from({ length: isPlain ? 0 : counts.slots }, (_, index) => ring.compressed(index));
  const all = [...raws, ...compressed, ring.output];
  for (const [number, buffer] of all.entries()) buffer.fill(number + 1);
  for (const [number, buffer] of all.entries())
    expect(buffer.equals(Buffer.alloc(buffer.length, number + 1))).toBe(true);
  // the next round of the ring uses the same
  expect(ring.raw(counts.raws).byteOffset).toBe(raws[0]!.byteOffset);
  expect(ring.zeros.equals(Buffer.alloc(BLOCK_BYTES))).toBe(true);
});

test('a block may be read when the one before it there is needed no more', () => {
  const ring = new Ring(createRingMemory(3));
  ring.reset('compressing');
  expect([ring.mayRead(3), ring.mayRead(4)]).toEqual([true, false]);
  ring.releaseRaw(0);
  expect([ring.mayRead(4), ring.waitToRead(4)]).toEqual([true, true]);
  ring.cancel();
  expect(ring.waitToRead(5)).toBe(false);
});

test('memories that nobody needs keep their place, and few their pages', () => {
  const memories = Array.from({ length: 4 }, () => takeRingMemory(1));
  for (const memory of memories) {
    Buffer.from(memory.bytes).fill(7);
    giveRingMemory(memory);
  }
  const last = [takeRingMemory(1), takeRingMemory(1)];
  expect(last).toEqual([memories[3], memories[2]]);
  expect(last.map(({ bytes }) => Buffer.from(bytes)[0])).toEqual([7, 7]);
  const first = takeRingMemory(1);
  expect(Buffer.from(first.bytes).equals(Buffer.alloc(first.bytes.byteLength))).toBe(true);
});
