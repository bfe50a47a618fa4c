import { StreamDecoder } from '@grpc/grpc-js/build/src/stream-decoder.js';
import { expect, test } from '@jest/globals';
import { letGoOfPieces } from './message-pieces.ts';

const SIZE = 2_000;

/** A message as it is on the wire: not compressed, its length, itself. */
function framed(size: number, fill: number): Buffer {
  const head = Buffer.alloc(5);
  head.writeUInt32BE(size, 1);
  return Buffer.concat([head, Buffer.alloc(size, fill)]);
}

/** Bytes of memory that it keeps, whole pieces where it keeps a part of one. */
function heldBy(decoder: StreamDecoder): number {
  type Pieces = { readPartialMessage: Buffer[]; readCompressFlag: Buffer };
  const { readPartialMessage, readCompressFlag } = decoder as unknown as Pieces;
  const memories = new Set([...readPartialMessage, readCompressFlag].map(({ buffer }) => buffer));
  return [...memories].reduce((sum, memory) => sum + memory.byteLength, 0);
}

test('a message is whole however it is cut, and nothing of it is kept then', () => {
  letGoOfPieces();
  letGoOfPieces();
  const wire = Buffer.concat([framed(SIZE, 7), framed(0, 0), framed(3, 9)]);
  for (const step of [1, 2, 3, 5, 1_000, wire.length]) {
    const decoder = new StreamDecoder(-1);
    const messages: Buffer[] = [];
    for (let at = 0; at < wire.length; at += step) {
      messages.push(...decoder.write(Buffer.from(wire.subarray(at, at + step))));
    }
    expect(messages.map(message => message.toString('hex'))).toEqual(
      [framed(SIZE, 7), framed(0, 0), framed(3, 9)].map(message => message.toString('hex')),
    );
    expect(heldBy(decoder)).toBe(1);
  }
});

test('pieces of a message that is not whole are kept', () => {
  letGoOfPieces();
  const decoder = new StreamDecoder(-1);
  decoder.write(framed(SIZE, 7).subarray(0, SIZE));
  expect(heldBy(decoder)).toBeGreaterThanOrEqual(SIZE - 5);
});
