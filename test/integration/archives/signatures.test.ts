// Whose an archive is, through the whole life of real ones: nodes of two controllers have the same pool and the same VM, one after
// another, and each extends, converts and copies what another one made.
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { RecompressBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { newId } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import type { CallContext } from 'nice-grpc-common';
import { GROWTH_LIMITS } from '../../../agent/src/archive/format/bounds.ts';
import { type TestAuthority, testAuthority } from '../../../agent/src/archive/format/signing-kit.ts';
import { ArchiveSigner } from '../../../agent/src/archive/index.ts';
import { backupService } from '../../../agent/src/grpc/backup-service.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { WorkflowLab } from '../backup/lab.ts';
import { firstBackup, increment, type Made } from '../increments/lab.ts';

let lab: WorkflowLab;
/** Of this controller `home` and `neighbour`; of another one `stranger`. */
let home: ArchiveSigner;
let neighbour: ArchiveSigner;
let stranger: ArchiveSigner;
beforeAll(async () => {
  lab = await WorkflowLab.start();
  const [ours, theirs] = [await testAuthority(), await testAuthority()];
  home = await signerUnder(ours);
  neighbour = await signerUnder(ours);
  stranger = await signerUnder(theirs);
});
afterAll(() => lab?.stop());

async function signerUnder(authority: TestAuthority): Promise<ArchiveSigner> {
  const identity = await authority.node(newId());
  return new ArchiveSigner({ identity: () => identity, isRevoked: () => false });
}

/** From now on the lab is that node; of a version without signatures, the one that makes none. */
function become(signer: ArchiveSigner, isSigning = true): void {
  lab.dependencies.judge = signer.judge;
  if (isSigning) lab.dependencies.sign = signer.sign;
  else delete lab.dependencies.sign;
}

const service = () => backupService(lab.runner, lab.dependencies);
const call = () => ({ signal: AbortSignal.timeout(60_000) }) as CallContext;
const fileOf = (filename: string, pool = 1) => ({ poolId: lab.world.node.pool(pool).uuid, filename });

async function guestWithDisk(): Promise<Guest> {
  const path = join(lab.world.node.pool(0).path, `${newId()}.qcow2`);
  await makePlainDisk(path, { sizeBytes: 4 * MiB, dataBytes: MiB });
  return lab.world.defineTiny({ disks: [{ path }] });
}

/** The VM, which is off, gets something new. */
async function change(guest: Guest): Promise<void> {
  for (const path of Object.values(await guest.disks()))
    await run(['qemu-io', '-f', 'qcow2', '-c', 'write -q -P 7 0 64k', path]);
}

/** Extends it as the node that the lab is. */
async function extend(guest: Guest, base: Made, request = {}): Promise<Made> {
  await change(guest);
  return increment(lab, guest, base, request);
}

async function convert(filename: string, sign: boolean): Promise<string> {
  const request = RecompressBackupRequest.fromPartial({
    ...{
      operationId: newId(),
      file: fileOf(filename),
      fileId: newId(),
      compress: !filename.endsWith('.zst'),
      sign,
    },
  });
  await service().recompress(request, call());
  const { resultJson } = await lab.ended(request.operationId);
  return (JSON.parse(resultJson) as { file: { filename: string } }).file.filename;
}

/** What each node thinks of it. */
async function trusts(filename: string, pool = 1): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const [name, signer] of Object.entries({ home, neighbour, stranger })) {
    lab.dependencies.judge = signer.judge;
    const { signature } = await service().show({ file: fileOf(filename, pool), state: '' }, call());
    found[name] = signature!.trust!;
  }
  return found;
}

const restore = (filename: string, allowForeign = false) =>
  lab.restore({ filename }, { allowForeign, poolId: lab.world.node.pool(0).uuid });
const refused = expect.objectContaining({ msgKey: 'archive_foreign' });
const OF_NOBODY = { home: 'foreign', neighbour: 'foreign', stranger: 'foreign' };

test('an archive of another controller’s node becomes nobody’s by an increment, a conversion or a copy', async () => {
  become(stranger);
  const guest = await guestWithDisk();
  const made = await firstBackup(lab, guest, { hashSum: true });
  const theirs = { home: 'foreign', neighbour: 'foreign', stranger: 'own' };
  expect(await trusts(made.file.filename)).toEqual(theirs);

  become(home);
  await expect(restore(made.file.filename)).rejects.toEqual(refused);
  const copy = join(lab.world.node.pool(0).path, 'backups', made.file.filename);
  mkdirSync(join(lab.world.node.pool(0).path, 'backups'), { recursive: true });
  copyFileSync(made.path, copy);
  expect(await trusts(made.file.filename, 0)).toEqual(theirs);

  become(home);
  const extended = await extend(guest, made);
  expect(extended.operation.warnings).toContainEqual(expect.stringContaining('stays without a signature'));
  expect(await trusts(made.file.filename)).toEqual(OF_NOBODY);

  become(home);
  const packed = await convert(made.file.filename, false);
  expect(await trusts(packed)).toEqual(OF_NOBODY);
  become(home);
  await expect(restore(packed)).rejects.toEqual(refused);
  const { operation } = await restore(packed, true);
  expect(operation.warnings).toContainEqual(expect.stringContaining('Nobody vouches for'));

  // at an administrator's word it may be restored by others, and is still not the node's own
  const signed = await convert(packed, true);
  const adopted = { home: 'fleet', neighbour: 'fleet', stranger: 'foreign' };
  expect(await trusts(signed)).toEqual(adopted);
  become(home);
  await extend(guest, { ...extended, file: { ...extended.file, filename: signed } });
  expect(await trusts(signed)).toEqual(adopted);
});

test('an archive that two nodes of a controller made is no one’s own, whoever extends or converts it', async () => {
  become(neighbour);
  const guest = await guestWithDisk();
  const made = await firstBackup(lab, guest);
  const { filename } = made.file;
  expect(await trusts(filename)).toEqual({ home: 'fleet', neighbour: 'own', stranger: 'foreign' });
  const shared = { home: 'fleet', neighbour: 'fleet', stranger: 'foreign' };
  for (const node of [home, home, neighbour]) {
    become(node);
    await extend(guest, made);
    expect(await trusts(filename)).toEqual(shared);
  }
  for (const sign of [false, true]) {
    become(home);
    const packed = await convert(filename, sign);
    expect(await trusts(packed)).toEqual(shared);
    become(home);
    await convert(packed, false);
  }
  expect(await trusts(filename)).toEqual(shared);
});

test('a chain of before signatures stays unsigned, and says how it is signed; the full backup that follows it is signed', async () => {
  become(home, false);
  const guest = await guestWithDisk();
  const before = await firstBackup(lab, guest);
  expect(await trusts(before.file.filename)).toEqual(OF_NOBODY);
  become(home);
  for (let time = 0; time < 2; time += 1) {
    const { operation } = await extend(guest, before);
    expect(operation.warnings).toContainEqual(
      expect.stringContaining('stays without a signature: it is not signed'),
    );
  }
  expect(await trusts(before.file.filename)).toEqual(OF_NOBODY);
  become(home);
  const shown = await service().show({ file: fileOf(before.file.filename), state: '' }, call());
  const foreign = shown.warnings!.find(({ key }) => key === 'archive_foreign');
  expect(foreign?.text).toContain('has it signed while it is compressed or unpacked (--sign)');

  // whatever ends the chain
  lab.dependencies.growthLimits = { ...GROWTH_LIMITS, states: 2 };
  await change(guest);
  const next = await increment(lab, guest, before, { fileId: newId(), fallbackFull: true });
  delete lab.dependencies.growthLimits;
  expect(next.file.filename).not.toBe(before.file.filename);
  expect(next.manifest.fallbackReason).not.toBeNull();
  expect(await trusts(next.file.filename)).toEqual({ home: 'own', neighbour: 'fleet', stranger: 'foreign' });
  become(home);
  await extend(guest, next);
  expect(await trusts(next.file.filename)).toEqual({ home: 'own', neighbour: 'fleet', stranger: 'foreign' });
});
