import { execFileSync, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { uuidV5 } from '@virtkeep/shared/ids';
import { KiB, MiB } from '@virtkeep/shared/units';
import * as disks from './index.ts';

const signal = new AbortController().signal;
const failed = expect.objectContaining({ msgKey: 'qemu_img_failed' });
let dir = '';
const at = (name: string) => join(dir, name);

beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'virtkeep-disks-'));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

async function overwrite(path: string, offset: number, bytes: Buffer): Promise<void> {
  const file = await open(path, 'r+');
  await file.write(bytes, 0, bytes.length, offset);
  await file.close();
}

/** Whether both show a guest the same bytes. */
function equal(raw: string, qcow2: string): boolean {
  return spawnSync('qemu-img', ['compare', '-q', '-f', 'raw', '-F', 'qcow2', raw, qcow2]).status === 0;
}

test('what is no image is not even opened: a terminal would become the one of the agent, and end it', async () => {
  const pipe = at('pipe');
  execFileSync('mkfifo', [pipe]);
  const module = new URL('qcow2-header.ts', import.meta.url).href;
  const read = `const { readImageHeader } = await import('${module}');
    await readImageHeader('${pipe}').catch(error => console.log(error.msgKey));`;
  const log = at('opened.log');
  const watch = ['-f', '-qq', '-e', 'trace=open,openat,openat2', '-o', log];
  const node = [process.execPath, '--no-warnings', '--input-type=module', '-e', read];
  expect(execFileSync('strace', [...watch, ...node], { encoding: 'utf8' })).toBe('not_a_file\n');
  const opened = readFileSync(log, 'utf8');
  expect([opened.includes('qcow2-header.ts'), opened.includes(pipe)]).toEqual([true, false]);
});

describe('qemu-img', () => {
  test('creates, reads, compares, converts and checks', async () => {
    writeFileSync(at('a.raw'), Buffer.alloc(MiB, 7));
    truncateSync(at('a.raw'), 3 * MiB + 512);
    await disks.convertImage(at('a.raw'), at('a.qcow2'), {
      signal,
      sourceFormat: 'raw',
      targetFormat: 'qcow2',
    });
    expect(equal(at('a.raw'), at('a.qcow2'))).toBe(true);
    const info = await disks.imageInfo(at('a.qcow2'), { signal });
    expect(info).toMatchObject({
      format: 'qcow2',
      virtualSize: 3 * MiB + 512,
      corrupt: false,
      encrypted: false,
    });
    expect(await disks.checkImage(at('a.qcow2'), { signal, format: 'qcow2' })).toEqual({
      ok: true,
      corruptions: 0,
      leaks: 0,
    });
    await overwrite(at('a.raw'), 100, Buffer.from('x'));
    expect(equal(at('a.raw'), at('a.qcow2'))).toBe(false);
  });

  test('sees a corrupt image', async () => {
    await disks.createImage(at('c.qcow2'), { signal, format: 'qcow2', virtualSize: 64 * MiB });
    execFileSync('qemu-io', ['-f', 'qcow2', '-c', 'write 0 1M', at('c.qcow2')]);
    // an L1 entry that points into the middle of nowhere
    await overwrite(at('c.qcow2'), 3 * 65536, Buffer.from('8000000000ff0000', 'hex'));
    expect((await disks.checkImage(at('c.qcow2'), { signal, format: 'qcow2' })).ok).toBe(false);
  });

  test('reports progress, errors, time-outs and aborts', async () => {
    execFileSync('qemu-img', ['create', '-q', '-f', 'raw', at('p.raw'), '64M']);
    const seen: number[] = [];
    await disks.convertImage(at('p.raw'), at('p.qcow2'), {
      signal, sourceFormat: 'raw', targetFormat: 'qcow2', onProgress: percent => seen.push(percent),
    }); // biome-ignore format: one call
    expect(seen.at(-1)).toBe(100);
    await expect(disks.imageInfo(at('missing'), { signal })).rejects.toEqual(failed);
    await expect(disks.imageInfo('relative', { signal })).rejects.toEqual(failed);
    const slow = disks.qemuImg('bench', ['-c', '100000000', '-f', 'raw', at('p.raw')], {
      signal,
      timeoutMs: 200,
    });
    await expect(slow).rejects.toEqual(expect.objectContaining({ msgKey: 'timed_out' }));
    const stopper = new AbortController();
    setTimeout(() => stopper.abort(), 100);
    const aborted = disks.qemuImg('bench', ['-c', '100000000', '-f', 'raw', at('p.raw')], {
      signal: stopper.signal,
    });
    await expect(aborted).rejects.toEqual(expect.objectContaining({ msgKey: 'canceled' }));
  });
});

describe('chains', () => {
  test('headers tell the same as qemu-img', async () => {
    await disks.createImage(at('base.qcow2'), { signal, format: 'qcow2', virtualSize: 10 * MiB });
    const base = { path: at('base.qcow2'), format: 'qcow2' };
    await disks.createImage(at('top.qcow2'), {
      signal,
      format: 'qcow2',
      backing: base,
      virtualSize: 12 * MiB,
    });
    const layers = await disks.readLayers(at('top.qcow2'), 'qcow2');
    const args = ['info', '--output=json', '--backing-chain', '-f', 'qcow2', at('top.qcow2')];
    const infos = JSON.parse(execFileSync('qemu-img', args, { encoding: 'utf8' }));
    expect(layers.map(layer => [layer.path, layer.format, layer.virtualSize, layer.allocatedSize])).toEqual(
      infos.map((info: Record<string, unknown>) => [
        info.filename, info.format, info['virtual-size'], info['actual-size'],
      ]), // biome-ignore format: one layer
    );
    expect(layers[0]).toMatchObject({ backingPath: at('base.qcow2'), backingFormat: 'qcow2' });
    expect(layers[0]).not.toHaveProperty('internalStates');
    for (const name of ['a', 'b'])
      execFileSync('qemu-img', ['snapshot', '-c', name, at('top.qcow2')], { stdio: 'ignore' });
    expect(await disks.readImageHeader(at('top.qcow2'))).toMatchObject({ internalStates: 2 });
    await disks.rebaseUnsafe(at('top.qcow2'), null, { signal });
    expect(await disks.readLayers(at('top.qcow2'))).toHaveLength(1);
  });

  test('a relative backing file and the JSON form are found; a raw disk has no layers', async () => {
    execFileSync('qemu-img', [
      'create',
      '-q',
      '-f',
      'qcow2',
      '-u',
      '-b',
      'base.qcow2',
      '-F',
      'qcow2',
      at('r.qcow2'),
      '1M',
    ]);
    expect((await disks.readLayers(at('r.qcow2'))).map(layer => layer.path)).toEqual([
      at('r.qcow2'),
      at('base.qcow2'),
    ]);
    expect(await disks.readLayers(at('r.qcow2'), 'raw')).toHaveLength(1);
    const json = `json:{"file":{"driver":"raw","offset":0,"size":65536,"file":{"driver":"file","filename":"${dir}//base.qcow2"}}}`;
    execFileSync('qemu-img', [
      'create',
      '-q',
      '-f',
      'qcow2',
      '-u',
      '-b',
      json,
      '-F',
      'qcow2',
      at('j.qcow2'),
      '1M',
    ]);
    expect((await disks.readLayers(at('j.qcow2')))[1]?.path).toBe(at('base.qcow2'));
  });
});

describe('an overlay is empty when nothing was written to it', () => {
  /** An image of so many pieces, every other one of zeros, that qemu-img tells more of it than is taken. */
  async function inPieces(path: string, pieces: number): Promise<number> {
    const virtualSize = pieces * 64 * KiB;
    const extra = ['preallocation=metadata'];
    await disks.createImage(path, { signal, format: 'qcow2', virtualSize, extra });
    const zeros = Buffer.alloc(64 * KiB);
    for (let entry = 0; entry < zeros.length; entry += 16) zeros.writeBigUInt64BE(1n, entry);
    const file = await open(path, 'r+');
    const { buffer: head } = await file.read(Buffer.alloc(48), 0, 48, 0);
    const table = Buffer.alloc(8 * head.readUInt32BE(36));
    await file.read(table, 0, table.length, Number(head.readBigUInt64BE(40)));
    for (let at = 0; at < table.length; at += 8) {
      const place = Number(table.readBigUInt64BE(at) & 0x00fffffffffffe00n);
      if (place !== 0) await file.write(zeros, 0, zeros.length, place);
    }
    await file.close();
    return virtualSize;
  }

  const overlay = (path: string, below: string, virtualSize: number) =>
    disks.createImage(path, {
      ...{ signal, format: 'qcow2', virtualSize },
      backing: { path: below, format: 'qcow2' },
    });

  test('though an image of many pieces lies below it, which is not empty itself', async () => {
    const size = await inPieces(at('pieces.qcow2'), 200_000);
    await overlay(at('above.qcow2'), at('pieces.qcow2'), size);
    expect(await disks.isEmptyOverlay(at('above.qcow2'), { signal })).toBe(true);
    expect(await disks.isEmptyOverlay(at('pieces.qcow2'), { signal })).toBe(false);
  });

  test('also where that is gone; zeros of its own are something', async () => {
    const odd = at('an "odd", name.qcow2');
    await overlay(odd, at('nowhere.qcow2'), MiB);
    expect(await disks.isEmptyOverlay(odd, { signal })).toBe(true);
    await disks.rebaseUnsafe(odd, { path: at('low.qcow2'), format: 'qcow2' }, { signal });
    await disks.createImage(at('low.qcow2'), { signal, format: 'qcow2', virtualSize: MiB });
    execFileSync('qemu-io', ['-f', 'qcow2', '-c', 'write -z 128k 64k', odd]);
    expect(await disks.isEmptyOverlay(odd, { signal })).toBe(false);
  });

  test('what cannot be read is neither', async () => {
    await expect(disks.isEmptyOverlay(at('missing'), { signal })).rejects.toEqual(failed);
  });
});

describe('foreign images', () => {
  test('only a self-contained one is accepted', async () => {
    await disks.createImage(at('good.qcow2'), { signal, format: 'qcow2', virtualSize: MiB });
    await disks.assertSelfContained(at('good.qcow2'), { signal });
    const backing = { path: '/etc/passwd', format: 'raw' };
    await disks.createImage(at('evil.qcow2'), { signal, format: 'qcow2', backing, virtualSize: MiB });
    await expect(disks.assertSelfContained(at('evil.qcow2'), { signal })).rejects.toEqual(failed);
    await disks.assertSelfContained(at('evil.qcow2'), { signal, allowedBacking: '/etc/passwd' });
    const data = ['-o', `data_file=${at('x.data')},data_file_raw=on`];
    execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', ...data, at('data.qcow2'), '1M']);
    await expect(disks.assertSelfContained(at('data.qcow2'), { signal })).rejects.toEqual(failed);
    writeFileSync(at('text.qcow2'), 'nothing');
    await expect(disks.assertSelfContained(at('text.qcow2'), { signal })).rejects.toEqual(failed);
  });

  test('a header with unknown features, a huge table or nonsense is refused', async () => {
    for (const [offset, hex] of [
      [72, '0000000000000100'],
      [36, 'ffffffff'],
      [8, '000000000000fff0000003ff'],
      [4, '00000009'],
    ] as const) {
      await disks.createImage(at('h.qcow2'), { signal, format: 'qcow2', virtualSize: MiB });
      await overwrite(at('h.qcow2'), offset, Buffer.from(hex, 'hex'));
      if (offset === 8) await overwrite(at('h.qcow2'), 16, Buffer.from('000003ff', 'hex'));
      await expect(disks.assertSelfContained(at('h.qcow2'), { signal })).rejects.toEqual(failed);
    }
  });

  test('random headers are judged, never anything else', async () => {
    let seed = 7;
    const random = () => {
      seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
      return seed / 2 ** 32;
    };
    for (let round = 0; round < 300; round++) {
      const head = Buffer.from(Array.from({ length: 512 }, () => random() * 256));
      head.writeUInt32BE(0x514649fb, 0);
      if (round % 2) head.writeUInt32BE(3, 4);
      if (round % 3) head.writeUInt32BE(104, 100);
      writeFileSync(at('fuzz'), head);
      expect((await disks.readImageHeader(at('fuzz'))).format).toBe('qcow2');
    }
  });
});

test('a disk id is the uuid in its name, else made of pool and path', () => {
  const uuid = '11111111-2222-4333-8444-555555555555';
  const pool = { id: '22222222-2222-4333-8444-555555555555', path: '/pool' };
  expect(disks.diskId(`/pool/${uuid.toUpperCase()}.qcow2`, pool)).toBe(uuid);
  expect(disks.diskId('/pool/a/b.qcow2', pool)).toBe(uuidV5(pool.id, 'a/b.qcow2'));
  expect(disks.diskId('/pool/a/b.qcow2', { ...pool, path: '/pool/a' })).toBe(uuidV5(pool.id, 'b.qcow2'));
  expect(disks.diskId('/x')).toBe(disks.diskId('/x'));
});
