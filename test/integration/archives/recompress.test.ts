// Converting, downloading and verifying backup files, through the service's own methods.

import { createHash, randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import {
  type DownloadBackupRequest,
  RecompressBackupRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { newId } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import type { CallContext } from 'nice-grpc-common';
import { openArchive } from '../../../agent/src/archive/index.ts';
import { appendState, noise, writeArchive } from '../../../agent/src/archive/test-kit.ts';
import { backupService } from '../../../agent/src/grpc/backup-service.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import { run } from '../../lab/run.ts';
import { WorkflowLab } from '../backup/lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
  for (const pool of [0, 1]) mkdirSync(directory(pool), { recursive: true });
});
afterAll(() => lab?.stop());
afterEach(() => lab.poolChanges.clear());

const signal = new AbortController().signal;
const context = () => ({ signal }) as CallContext;
const service = () => backupService(lab.runner, lab.dependencies);
const pool = (index: number) => lab.world.node.pool(index);
const directory = (index: number) => join(pool(index).path, 'backups');
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');

/** An archive of two states in the second pool. */
async function makeArchive(name: string, bytes = noise(9 * MiB + 77), hash = true): Promise<string> {
  const path = join(directory(1), name);
  const source = join(lab.world.dir, `${name}.disk`);
  writeFileSync(source, bytes);
  await writeArchive(path, [{ name: 'd.qcow2', from: source }], { zstd: name.endsWith('.zst'), hash });
  const tailPath = join(lab.world.dir, `${name}.tail`);
  await appendState(path, [{ name: 'd_s.snapshot', from: noise(3 * MiB, 2) }], { tailPath });
  return path;
}

const requestOf = (filename: string, changes: Partial<RecompressBackupRequest> = {}) =>
  RecompressBackupRequest.fromPartial({
    operationId: newId(),
    file: { poolId: pool(1).uuid, filename },
    fileId: newId(),
    compress: !filename.endsWith('.zst'),
    ...changes,
  });

async function convert(filename: string, changes: Partial<RecompressBackupRequest> = {}) {
  const request = requestOf(filename, changes);
  await service().recompress(request, context());
  const operation = await lab.ended(request.operationId);
  return JSON.parse(operation.resultJson).file as {
    filename: string;
    path: string;
    poolId: string;
    id: string;
  };
}

describe('a conversion', () => {
  test('in place and back keeps id, states, members, hashes; the VM that was in it is restored', async () => {
    const disk = await makePlainDisk(`${pool(0).path}/${newId()}.qcow2`, {
      sizeBytes: 8 * MiB,
      dataBytes: 5 * MiB,
    });
    const guest = await lab.world.defineTiny({ disks: [{ path: disk }] });
    const { file, path } = await lab.backup(guest, { hashSum: true });
    const before = readFileSync(path);
    const sums = readFileSync(`${path}.sha256`);
    const packed = await convert(file.filename);
    expect(packed).toMatchObject({
      id: file.id,
      filename: `${file.filename}.zst`,
      compressed: true,
      hashed: true,
    });
    expect([existsSync(path), existsSync(`${path}.sha256`)]).toEqual([false, false]);
    expect(readFileSync(`${packed.path}.sha256`).equals(sums)).toBe(true);
    const { result } = await lab.restore(packed, { poolId: pool(1).uuid });
    await run(['qemu-img', 'compare', '-q', disk, result.disks[0]!.path]);
    const unpacked = await convert(packed.filename);
    expect(unpacked).toMatchObject({ id: file.id, filename: file.filename });
    expect(sha256(readFileSync(unpacked.path))).toBe(sha256(before));
  });

  test('into another pool, beside a file of that name', async () => {
    const path = await makeArchive('moved.tar');
    writeFileSync(join(directory(0), 'moved.tar.zst'), 'mine');
    const moved = await convert('moved.tar', { poolId: pool(0).uuid, compressionLevel: 1 });
    expect(moved).toMatchObject({ filename: 'moved_2.tar.zst', poolId: pool(0).uuid });
    expect(existsSync(path)).toBe(false);
    expect(readFileSync(join(directory(0), 'moved.tar.zst'), 'utf8')).toBe('mine');
    const archive = await openArchive(moved.path, signal);
    expect(await archive.verify({ signal })).toMatchObject({ problems: [], restorableStates: [1, 2] });
    await archive.close();
  });

  test('is refused for what is so already, for pools that refuse, and while somebody reads', async () => {
    await makeArchive('refused.tar');
    const refusal = (changes: Partial<RecompressBackupRequest>) =>
      expect(service().recompress(requestOf('refused.tar', changes), context())).rejects;
    await refusal({ compress: false }).toMatchObject({ msgKey: 'compression_same' });
    await refusal({ compressionLevel: 12 }).toMatchObject({ msgKey: 'invalid_field' });
    await refusal({ poolId: newId() }).toMatchObject({ msgKey: 'pool_not_found' });
    lab.poolChanges.set(pool(0).name, { readonly: true });
    await refusal({ poolId: pool(0).uuid }).toMatchObject({ msgKey: 'pool_read_only' });
    const release = lab.runner.hold('download', [
      { kind: 'file', id: join(directory(1), 'refused.tar'), mode: 'shared' },
    ]);
    await refusal({}).toMatchObject({ msgKey: 'file_busy' });
    release();
  });

  test('carries no damage over: the old file stays', async () => {
    const path = await makeArchive('damaged.tar');
    const bytes = readFileSync(path);
    bytes[4 * MiB]! ^= 1;
    writeFileSync(path, bytes);
    await expect(convert('damaged.tar')).rejects.toMatchObject({ msgKey: 'hash_mismatch' });
    expect(readFileSync(path).equals(bytes)).toBe(true);
    expect(lab.files(1).filter(name => name.includes('damaged'))).toEqual([
      'damaged.tar',
      'damaged.tar.sha256',
    ]);
  });

  test('into a pool without space: refused or ended with disk_full, nothing left', async () => {
    const target = pool(0);
    await run(['mount', '-t', 'tmpfs', '-o', 'size=16M', 'tmpfs', target.path]);
    try {
      await makeArchive('large.tar', randomBytes(40 * MiB));
      const into = { poolId: target.uuid };
      await expect(convert('large.tar', into)).rejects.toMatchObject({ msgKey: 'pool_no_space' });
      const path = await makeArchive('middle.tar', randomBytes(24 * MiB));
      await expect(convert('middle.tar', into)).rejects.toMatchObject({ msgKey: 'disk_full' });
      expect(lab.files(0)).toEqual(['backups']);
      expect(existsSync(path)).toBe(true);
    } finally {
      await run(['umount', target.path]);
    }
  });
});

async function download(filename: string, changes: Partial<DownloadBackupRequest> = {}) {
  const request = {
    file: { poolId: pool(1).uuid, filename },
    member: '',
    offset: 0n,
    length: 0n,
    ...changes,
  };
  const sizes: bigint[] = [];
  const pieces: Buffer[] = [];
  for await (const chunk of service().download(request, context()) as AsyncIterable<{
    size: bigint;
    data: Buffer;
  }>) {
    sizes.push(chunk.size);
    pieces.push(chunk.data);
    expect(chunk.data.length).toBeLessThanOrEqual(MiB);
  }
  return { size: Number(sizes[0]), bytes: Buffer.concat(pieces) };
}

describe('a download', () => {
  test.each(['load.tar', 'load.tar.zst'])('of %s, whole, in part, and of a member', async name => {
    const path = await makeArchive(name);
    const whole = readFileSync(path);
    const all = await download(name);
    // Comparing buffers of megabytes by toEqual takes half a minute.
    expect([all.size, all.bytes.equals(whole)]).toEqual([whole.length, true]);
    const part = { offset: 1_500_000n, length: 2_000_000n };
    expect((await download(name, part)).bytes.equals(whole.subarray(1_500_000, 3_500_000))).toBe(true);
    const disk = noise(9 * MiB + 77);
    const member = await download(name, { member: 'd.qcow2' });
    expect([member.size, member.bytes.equals(disk)]).toEqual([disk.length, true]);
    const piece = await download(name, { member: 'd.qcow2', ...part });
    expect(piece.bytes.equals(disk.subarray(1_500_000, 3_500_000))).toBe(true);
    expect(await download(name, { offset: BigInt(whole.length) })).toEqual({
      size: whole.length,
      bytes: Buffer.alloc(0),
    });
  });

  test('refuses what is not there, and holds the file as long as it is read', async () => {
    await makeArchive('held.tar');
    await expect(download('none.tar')).rejects.toMatchObject({ msgKey: 'file_not_found' });
    await expect(download('../held.tar')).rejects.toMatchObject({ msgKey: expect.any(String) });
    await expect(download('held.tar', { member: 'x' })).rejects.toMatchObject({ msgKey: 'member_not_found' });
    const beyond = download('held.tar', { offset: 1n << 40n });
    await expect(beyond).rejects.toMatchObject({ msgKey: 'invalid_field' });
    const request = {
      file: { poolId: pool(1).uuid, filename: 'held.tar' },
      member: '',
      offset: 0n,
      length: 0n,
    };
    const chunks = service().download(request, context()) as AsyncGenerator<unknown>;
    await chunks.next();
    await expect(service().recompress(requestOf('held.tar'), context())).rejects.toMatchObject({
      msgKey: 'file_busy',
    });
    await chunks.return(undefined);
    expect((await convert('held.tar')).filename).toBe('held.tar.zst');
  });
});

describe('a verification', () => {
  async function verify(filename: string) {
    const operationId = newId();
    const file = { poolId: pool(1).uuid, filename };
    await service().verify({ operationId, file, fileId: newId() }, context());
    return JSON.parse((await lab.ended(operationId)).resultJson);
  }

  test('says what can still be restored', async () => {
    const path = await makeArchive('verified.tar');
    expect(await verify('verified.tar')).toMatchObject({
      ok: true,
      restorable_states: [1, 2],
      verified_at: expect.stringMatching(/^\d{4}-/),
    });
    truncateSync(path, readFileSync(path).length - 200_000);
    expect(await verify('verified.tar')).toMatchObject({
      ok: false,
      restorable_states: [1],
      problems: [
        { member: '', reason: expect.stringMatching(/^torn_tail/) },
        { member: 'd_s.snapshot', reason: expect.stringMatching(/^truncated/) },
      ],
    });
    const ref = { file: { poolId: pool(1).uuid, filename: 'verified.tar' } };
    await expect(service().show({ ...ref, state: '' }, context())).rejects.toMatchObject({
      msgKey: 'archive_damaged',
    });
  });
});
