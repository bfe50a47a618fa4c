import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { freeName, ownsName, reserveName } from './reserve.ts';

let directory: string;
let path: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'reserve-'));
  path = join(directory, 'a.tar');
});
afterEach(() => rmSync(directory, { recursive: true }));

test('of many that want a name one gets it', async () => {
  const owners = Array.from({ length: 20 }, (_, index) => `owner-${index}`);
  const locks = await Promise.all(owners.map(owner => reserveName(path, owner)));
  const winners = owners.filter((_, index) => locks[index] !== null);
  expect(winners).toHaveLength(1);
  expect(await ownsName(path, winners[0]!)).toBe(true);
  for (const owner of owners.filter(name => name !== winners[0])) await freeName(path, owner);
  expect(await ownsName(path, winners[0]!)).toBe(true);
  await locks.find(lock => lock !== null)!.release();
  await freeName(path, winners[0]!);
  expect(readdirSync(directory)).toEqual([]);
});

test('a name that an archive has is taken', async () => {
  writeFileSync(path, '');
  expect(await reserveName(path, 'one')).toBeNull();
  expect(readdirSync(directory)).toEqual(['a.tar']);
});

test('who died does not keep the name, and does not take it from who got it then', async () => {
  await (await reserveName(path, 'dead'))!.release();
  const lock = await reserveName(path, 'next');
  expect(lock).not.toBeNull();
  expect(await ownsName(path, 'dead')).toBe(false);
  await freeName(path, 'dead');
  await lock!.release();
  await freeName(path, 'dead');
  expect(await ownsName(path, 'next')).toBe(true);
});

test('one that was cut off while it was made is stale', async () => {
  writeFileSync(join(directory, '.a.tar.reserved'), '');
  const lock = await reserveName(path, 'next');
  expect(readFileSync(join(directory, '.a.tar.reserved'), 'utf8')).toBe('next');
  await lock!.release();
});
