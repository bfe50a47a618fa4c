import { chmodSync, mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { actAsStateOwner } from './state-owner.ts';

const NOBODY = 'nobody-has-this-name';

let base: string;
let before: number;
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'owner-'));
  before = process.umask(0o077);
});
afterEach(() => {
  process.umask(before);
  rmSync(base, { recursive: true, force: true });
});

const modeOf = (...names: string[]) => statSync(join(base, ...names)).mode & 0o777;

test('whatever umask root has, others pass through the directories that are made, and not into the last', () => {
  mkdirSync(join(base, 'there'));
  chmodSync(join(base, 'there'), 0o710);
  actAsStateOwner(join(base, 'there', 'a', 'b', 'state'), NOBODY)();
  expect([modeOf('there'), modeOf('there', 'a'), modeOf('there', 'a', 'b')]).toEqual([0o710, 0o755, 0o755]);
  expect(modeOf('there', 'a', 'b', 'state')).toBe(0o700);
});

test('of directories that are there no mode is changed', () => {
  mkdirSync(join(base, 'state'), { mode: 0o700 });
  chmodSync(base, 0o711);
  actAsStateOwner(join(base, 'state'), NOBODY)();
  expect([modeOf(), modeOf('state')]).toEqual([0o711, 0o700]);
});
