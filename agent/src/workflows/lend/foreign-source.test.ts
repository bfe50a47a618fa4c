/** What a node that lends a disk, or whoever writes to the pool, could name to make another node open it. */
import { execFileSync } from 'node:child_process';
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { samplePool } from '../../pools/sample-pool.ts';
import { lentImageRefusal } from './foreign-source.ts';

let dir = '';
const pool = () => samplePool('p', { path: join(dir, 'pool') });
const at = (name: string) => join(dir, 'pool', name);
const secret = () => join(dir, 'secret');
const refusal = (name: string, format = 'qcow2', pools = [pool()]) =>
  lentImageRefusal(at(name), format, pools);

const qemuImg = (...args: string[]) => execFileSync('qemu-img', args);
const overlay = (name: string, backing: string, format = 'raw') =>
  qemuImg('create', '-q', '-f', 'qcow2', '-u', '-b', backing, '-F', format, at(name), '1M');

beforeEach(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), 'virtkeep-lent-')));
  mkdirSync(at('backups'), { recursive: true });
  mkdirSync(at('sub'));
  writeFileSync(secret(), 'root:secret\n');
  qemuImg('create', '-q', '-f', 'qcow2', at('base.qcow2'), '1M');
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

describe('an image that another node lends', () => {
  test('is taken with all its layers, named absolutely or from where they lie', async () => {
    overlay('middle.qcow2', 'base.qcow2', 'qcow2');
    overlay('sub/top.qcow2', '../middle.qcow2', 'qcow2');
    writeFileSync(at('disk.raw'), 'guest');
    overlay('on-raw.qcow2', at('disk.raw'));
    expect(await refusal('sub/top.qcow2')).toBeUndefined();
    expect(await refusal('on-raw.qcow2')).toBeUndefined();
    expect(await refusal('disk.raw', 'raw')).toBeUndefined();
  });

  test('stays raw although its guest wrote the header of another format to it', async () => {
    overlay('planted.raw', secret());
    expect(await refusal('planted.raw', 'raw')).toBeUndefined();
    // told as qcow2, by an owner that lies, it still leads nowhere
    expect(await refusal('planted.raw', 'qcow2')).toMatch(/in no data pool/);
  });

  test.each<[string, () => void, RegExp]>([
    ['a file outside as backing file', () => overlay('x', secret()), /in no data pool/],
    [
      'one behind a link inside',
      () => {
        symlinkSync(secret(), at('link'));
        overlay('x', at('link'));
      },
      /in no data pool/,
    ],
    ['one that is reached by ..', () => overlay('x', '../secret'), /in no data pool/],
    [
      'a description in place of a name',
      () => overlay('x', `json:{"driver":"raw","file":{"driver":"file","filename":"${at('base.qcow2')}"}}`),
      /no plain file/,
    ],
    ['a server', () => overlay('x', 'nbd:localhost:10809'), /no plain file/],
    [
      'a backup file as backing file',
      () => {
        writeFileSync(at('backups/other.tar'), 'data');
        overlay('x', at('backups/other.tar'));
      },
      /among the backup files/,
    ],
    [
      'data in another file',
      () => {
        writeFileSync(at('data'), '');
        qemuImg(
          'create',
          '-q',
          '-f',
          'qcow2',
          '-o',
          `data_file=${at('data')},data_file_raw=on`,
          at('x'),
          '1M',
        );
      },
      /data in another file/,
    ],
    ['a layer of a format that is not lent', () => overlay('x', at('base.qcow2'), 'vmdk'), /a vmdk image/],
    [
      'a layer whose format it does not say',
      () => {
        overlay('x', at('base.qcow2'), 'qcow2');
        const bytes = readFileSync(at('x'));
        // the extension that tells it becomes one that nobody knows
        bytes.writeUInt32BE(0x12345678, bytes.indexOf(Buffer.from('e2792aca', 'hex')));
        writeFileSync(at('x'), bytes);
      },
      /does not say the format/,
    ],
    ['no header at all', () => writeFileSync(at('x'), 'root'), /no qcow2 image/],
  ])('is refused with %s', async (_what, make, reason) => {
    make();
    expect(await refusal('x')).toMatch(reason);
  });

  test('is refused in a pool that is outside, off, or nested in one that may be used', async () => {
    expect(await refusal('base.qcow2', 'qcow2', [{ ...pool(), outside: true }])).toMatch(/in no data pool/);
    expect(await refusal('base.qcow2', 'qcow2', [{ ...pool(), active: false }])).toMatch(/in no data pool/);
    writeFileSync(at('sub/disk.raw'), 'guest');
    const inner = samplePool('inner', { path: at('sub'), outside: true });
    expect(await refusal('sub/disk.raw', 'raw', [pool(), inner])).toMatch(/in no data pool/);
    expect(await refusal('sub/disk.raw', 'raw', [pool(), { ...pool(), outside: true }])).toBeUndefined();
  });

  test('is refused as a backup file, a loop, and a pipe', async () => {
    writeFileSync(at('backups/vm.tar'), 'data');
    expect(await refusal('backups/vm.tar', 'raw')).toMatch(/among the backup files/);
    overlay('loop', at('back'), 'qcow2');
    overlay('back', at('loop'), 'qcow2');
    expect(await refusal('loop')).toMatch(/more than 200 layers/);
    execFileSync('mkfifo', [at('pipe')]);
    await expect(refusal('pipe', 'raw')).rejects.toEqual(expect.objectContaining({ msgKey: 'not_a_file' }));
    expect(await lentImageRefusal('/etc/shadow', 'raw', [pool()])).toMatch(/in no data pool/);
  });
});
