/** An ISO image that is uploaded, and may break off. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { uploadIso } from '../../../agent/src/workflows/files/upload-iso.ts';
import type { BuildStory } from '../undo-model.ts';

const PIECES = 4;

export const newIso: BuildStory = async (world, random) => {
  const filename = 'new.iso';
  const path = join(world.pool, filename);
  const other = join(world.pool, 'other.iso');
  writeFileSync(other, 'somebody else');
  const pieces = Array.from({ length: PIECES }, () => Buffer.alloc(1000, random(256)));
  const whole = Buffer.concat(pieces);
  const breaksAt = random(3) === 0 ? random(PIECES) : PIECES;
  async function* sent(): AsyncGenerator<Uint8Array> {
    for (const [index, piece] of pieces.entries()) {
      if (index === breaksAt) throw new Error('the caller went away');
      yield piece;
    }
  }
  const pool = { ...world.poolRecord, path: world.pool };
  return {
    kind: 'upload_iso',
    points: 6,
    mayFail: true,
    workflow: () =>
      uploadIso({ place: { pool, filename, path }, sizeBytes: random(2) * whole.length, bytes: sent() }),
    async undone() {},
    async safe(committed) {
      // never half of it
      if (committed || existsSync(path)) expect(readFileSync(path)).toEqual(whole);
      expect(readFileSync(other, 'utf8')).toBe('somebody else');
    },
    async settled(committed) {
      expect(world.files()).toHaveLength(committed ? 2 : 1);
    },
  };
};
