import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { Faults } from './faults.ts';

let directory: string;
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-faults-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

const never = new AbortController().signal;

test('without the variable nothing happens', async () => {
  const faults = Faults.parse(undefined);
  expect(faults.active).toBe(false);
  await faults.reach('backup', 'copy', 'before', never);
  expect(faults.middle('backup', 'copy')).toBeUndefined();
});

test('fail throws at its point only', async () => {
  const faults = Faults.parse('backup.copy.before=fail, backup.copy.mid=fail');
  await faults.reach('backup', 'copy', 'after', never);
  await expect(faults.reach('backup', 'copy', 'before', never)).rejects.toMatchObject({
    msgKey: 'io_failed',
  });
  expect(() => faults.middle('backup', 'copy')).toThrow(expect.objectContaining({ msgKey: 'io_failed' }));
});

test('pause makes its mark and holds until the file exists or the operation is aborted', async () => {
  const gate = join(directory, 'gate');
  const faults = Faults.parse(`backup.copy.after=pause:${gate}`);
  const held = faults.reach('backup', 'copy', 'after', never);
  expect(existsSync(`${gate}.reached`)).toBe(true);
  const abort = new AbortController();
  const aborted = faults.reach('backup', 'copy', 'after', abort.signal);
  abort.abort();
  await expect(aborted).rejects.toMatchObject({ msgKey: 'canceled' });
  writeFileSync(gate, '');
  await held;
});

test('a file of faults is read at each step', async () => {
  const list = join(directory, 'faults');
  writeFileSync(list, '');
  const faults = Faults.parse(`@${list}`);
  expect(faults.active).toBe(true);
  await faults.reach('backup', 'copy', 'before', never);
  writeFileSync(list, 'backup.copy.before=fail');
  await expect(faults.reach('backup', 'copy', 'before', never)).rejects.toMatchObject({
    msgKey: 'io_failed',
  });
});

test.each(['x', 'a.b=kill', 'a.b.before=explode', 'a.b.before=pause:relative'])('%s is refused', text => {
  expect(() => Faults.parse(text)).toThrow('VIRTKEEP_FAULTS');
});
