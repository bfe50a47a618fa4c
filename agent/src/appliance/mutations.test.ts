import { createHash } from 'node:crypto';
import { readFile, rm, writeFile } from 'node:fs/promises';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { isVirtkeepError } from '@virtkeep/shared/errors';
import { seededRandom } from '@virtkeep/shared/seeded-random';
import { KiB } from '@virtkeep/shared/units';
import { checkCertificate, inspectImage, openAppliance, unpackMembers, verifyMembers } from './index.ts';
import { scratch, streamVmdk, tar, tarMember, tool } from './test-kit.ts';

// Whatever is done to the bytes: an answer or an error of the table, within a time, and nothing beyond the file.
const SEED = Number(process.env.VIRTKEEP_APPLIANCE_SEED ?? Date.now() % 1_000_000);
const TIMES = Number(process.env.VIRTKEEP_APPLIANCE_TIMES ?? 500);
/** For one; a thousandth is usual. */
const MAX_MS = 30_000;

const dir = scratch();
afterAll(dir.remove);

const DISK = Buffer.alloc(256 * KiB, 'disk');
const bases: Record<'package' | 'manifest' | 'image', Buffer[]> = { package: [], manifest: [], image: [] };

beforeAll(async () => {
  const digest = createHash('sha256').update(DISK).digest('hex');
  const files = { 'vm.ovf': '<Envelope/>', 'vm.mf': `SHA256(disk.vmdk)= ${digest}\n`, 'disk.vmdk': DISK };
  const members = Object.entries(files).map(([name, bytes]) => tarMember(name, bytes));
  await writeFile(dir.at('disk.raw'), DISK);
  await writeFile(dir.at('vm.ova'), tar(...members));
  tool('bsdtar', ['--format=zip', '-cf', dir.at('vm.zip'), '-C', dir.at('.'), 'vm.ova']);
  tool('bsdtar', ['--format=zip', '-cf', dir.at('files.zip'), `@${dir.at('vm.ova')}`]);
  bases.package = [tar(...members), gzipSync(tar(...members))];
  for (const name of ['vm.zip', 'files.zip']) bases.package.push(await readFile(dir.at(name)));
  tool(
    'openssl',
    ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj', '/CN=x', '-keyout', 'key', '-out', 'pem'],
    dir.at('.'),
  );
  const certificate = `SHA256(vm.mf)= ${'ab'.repeat(256)}\n${await readFile(dir.at('pem'), 'utf8')}`;
  bases.manifest = [Buffer.from(files['vm.mf']), Buffer.from(certificate)];
  bases.image = [streamVmdk(DISK)];
  for (const format of ['vmdk', 'qcow2', 'vpc', 'vhdx', 'vdi']) {
    tool('qemu-img', ['convert', '-f', 'raw', '-O', format, dir.at('disk.raw'), dir.at('image')]);
    bases.image.push(await readFile(dir.at('image')));
  }
});

/** Changes a few places, most of them where headers are. */
function mutated(base: Buffer, random: (below: number) => number): Buffer {
  let bytes = Buffer.from(base);
  for (let count = 1 + random(4); count > 0; count--) {
    const area = [600, 4096, 262_144, bytes.length][random(4)]!;
    const fromEnd = random(4) === 0;
    const near = random(Math.min(area, bytes.length));
    const at = fromEnd ? bytes.length - 1 - near : near;
    const length = Math.min([1, 2, 4, 8, 512][random(5)]!, bytes.length - at);
    const how = random(6);
    if (how === 0) bytes[at]! ^= 1 << random(8);
    else if (how === 1) bytes.fill(0, at, at + length);
    else if (how === 2) bytes.fill(0xff, at, at + length);
    else if (how === 3) for (let index = 0; index < length; index++) bytes[at + index] = random(256);
    else if (how === 4) bytes.copy(bytes, at, random(bytes.length), random(bytes.length) + length);
    else if (random(8) === 0) bytes = bytes.subarray(0, Math.max(1, at));
    // small numbers, and those at the bounds of what a field holds
    else if (length === 4) bytes.writeUInt32LE([0, 1, 2, 0x7fff_ffff, 0x8000_0000][random(5)]!, at);
  }
  return bytes;
}

const CHECKS = {
  async package(path: string, signal: AbortSignal, size: number): Promise<void> {
    const appliance = await openAppliance(path, signal);
    try {
      expect(appliance.descriptor.name).toMatch(/\.ovf$/i);
      for (const { name, place, sizeBytes } of appliance.members) {
        expect(name).not.toMatch(/^\/|^\.\.$|^\.\.\/|\/\.\.\/|\/\.\.$/);
        if (place !== null) expect(place.offset + sizeBytes).toBeLessThanOrEqual(size);
      }
      await verifyMembers(appliance, { signal });
      if (appliance.packing !== 'none')
        await unpackMembers(appliance, new Map([[appliance.descriptor.name, `${path}.out`]]), { signal });
    } finally {
      await appliance.close();
      await rm(`${path}.out`, { force: true });
    }
  },

  async manifest(path: string, signal: AbortSignal): Promise<void> {
    const bytes = await readFile(path);
    const names = bytes.includes('CERTIFICATE') ? ['vm.mf', 'vm.cert'] : ['vm.cert', 'vm.mf'];
    const other = bases.manifest[names[1] === 'vm.cert' ? 0 : 1]!;
    await writeFile(
      path,
      tar(tarMember('vm.ovf', 'x'), tarMember(names[0]!, other), tarMember(names[1]!, bytes)),
    );
    const appliance = await openAppliance(path, signal);
    try {
      await verifyMembers(appliance, { signal });
      await checkCertificate(appliance, { pem: bases.manifest[1]!.toString() });
    } finally {
      await appliance.close();
    }
  },

  async image(path: string, signal: AbortSignal, size: number): Promise<void> {
    const { blockdev, format } = await inspectImage(
      { path, offset: 0, sizeBytes: size, name: 'x' },
      undefined,
      signal,
    );
    expect(blockdev.driver).toBe(format);
  },
};

test(`${TIMES} random changes end with an answer or an error of the table (VIRTKEEP_APPLIANCE_SEED=${SEED})`, async () => {
  // fewer images: each that looks sound costs a run of qemu-img
  const kinds = ['package', 'package', 'package', 'manifest', 'manifest', 'image'] as const;
  const ends = { taken: 0, refused: 0 };
  for (let time = 0; time < TIMES; time++) {
    const random = seededRandom(SEED + time);
    const kind = kinds[random(kinds.length)]!;
    const bytes = mutated(bases[kind][random(bases[kind].length)]!, random);
    const path = dir.at('mutated');
    await writeFile(path, bytes);
    const where = `change ${time}, a ${kind}: VIRTKEEP_APPLIANCE_SEED=${SEED + time} VIRTKEEP_APPLIANCE_TIMES=1`;
    const began = Date.now();
    try {
      await CHECKS[kind](path, AbortSignal.timeout(MAX_MS), bytes.length);
      ends.taken++;
    } catch (error) {
      if (!isVirtkeepError(error) || error.msgKey === 'canceled') throw new Error(where, { cause: error });
      ends.refused++;
    }
    if (Date.now() - began > MAX_MS) throw new Error(`too slow: ${where}`);
  }
  expect(Math.min(ends.taken, ends.refused)).toBeGreaterThan(TIMES / 20 - 1);
}, 3_600_000);
