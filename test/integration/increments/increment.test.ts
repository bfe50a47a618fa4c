import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { makePlainDisk } from '../../lab/disks.ts';
import { defineGuest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { checkFileSystem } from '../archives/archive-tools.ts';
import { WorkflowLab } from '../backup/lab.ts';
import {
  compareStates,
  contentOf,
  diskHashes,
  diskOf,
  firstBackup,
  increment,
  type Made,
  unpack,
  write,
} from './lab.ts';

const MIB = 1024 * 1024;
let lab: WorkflowLab;
const virsh = (...args: string[]) => lab.world.node.virsh(...args);
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

/** Each state of the archive shows the text that the guest had written then. */
async function expectStates(path: string, texts: string[], target = 'vda'): Promise<void> {
  const { directory, manifests } = await unpack(lab, path);
  for (const [index, text] of texts.entries()) {
    const manifest = manifests.get(index + 1)!;
    expect(manifest.states.map(({ number }) => number)).toEqual(
      texts.slice(0, index + 1).map((_, i) => i + 1),
    );
    expect(await contentOf(directory, manifest, 'note', target)).toBe(text);
    await checkFileSystem(await diskOf(directory, manifest, target));
  }
}

const statesOf = (made: Made): string[] => made.manifest.states.map(({ name }: { name: string }) => name);

describe('a running guest with an agent', () => {
  test.each([
    ['tar', false],
    ['tar.zst', true],
  ])('%s: five increments, held and not held, each state as the guest was', async (_, compress) => {
    const guest = await lab.world.defineTiny({ dataDisks: [{}, { format: 'raw' }] });
    await (await guest.start()).waitForAgent();
    await write(guest, '/mnt/vda/note', 'one');
    let made = await firstBackup(lab, guest, { compress, hashSum: true });
    const { path } = made;
    expect(made.manifest).toMatchObject({
      incremental: true,
      states: [{ number: 1, consistency: 'quiesced' }],
    });
    expect(await guest.snapshots()).toEqual(statesOf(made));
    const texts = ['one'];
    for (const [text, holdStates, left] of [
      ['two', true, 2],
      ['three', true, 3],
      ['four', true, 4],
      ['five', false, 3],
      ['six', false, 3],
    ] as const) {
      await write(guest, '/mnt/vda/note', text);
      texts.push(text);
      made = await increment(lab, guest, made, { holdStates });
      expect(made.path).toBe(path);
      expect(made.operation.warnings).toEqual([]);
      expect(JSON.parse(made.operation.resultJson)).toMatchObject({ state: texts.length });
      expect(await guest.snapshots()).toEqual(statesOf(made).slice(-left));
    }
    expect(made.manifest.disks[0].layers).toHaveLength(6);
    await expectStates(path, texts);
    const { directory } = await unpack(lab, path);
    await run(['sha256sum', '--quiet', '-c', `${path}.sha256`], { cwd: directory });
    expect(
      readdirSync(join(lab.world.node.pool(1).path, 'backups')).filter(name => /tail|partial/.test(name)),
    ).toEqual([]);
    expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
    await guest.destroy();
  });

  test('made plain without hashes, it is compressed and has them when an increment asks for that, and is unpacked again', async () => {
    const guest = await lab.world.defineTiny({ dataDisks: [{}] });
    await (await guest.start()).waitForAgent();
    await write(guest, '/mnt/vda/note', 'one');
    const first = await firstBackup(lab, guest);
    await write(guest, '/mnt/vda/note', 'two');
    const other = await increment(lab, guest, first, { extendCompressed: true, extendHashed: true });
    expect(other.path).toBe(`${first.path}.zst`);
    expect(other.operation.warnings).toEqual([expect.stringContaining('was converted')]);
    await expectStates(other.path, ['one', 'two']);
    const { directory } = await unpack(lab, other.path);
    await run(['sha256sum', '--quiet', '--strict', '-c', `${other.path}.sha256`], { cwd: directory });
    await write(guest, '/mnt/vda/note', 'three');
    const back = await increment(lab, guest, other, { extendCompressed: false });
    expect(back.path).toBe(first.path);
    await expectStates(back.path, ['one', 'two', 'three']);
    const names = readdirSync(join(lab.world.node.pool(1).path, 'backups'));
    expect(names.filter(name => name.includes(guest.name) || /tail|partial/.test(name)).toSorted()).toEqual([
      back.file.filename,
      `${back.file.filename}.sha256`,
    ]);
    await guest.destroy();
  });

  test('disks added, grown and removed while it runs, powered off and on between', async () => {
    const guest = await lab.world.defineTiny();
    await (await guest.start()).waitForAgent();
    let made = await firstBackup(lab, guest);
    const wanted = [await diskHashes(lab, guest)];
    let text = 0;
    const again = async () => {
      text += 1;
      if ((await guest.state()) === 'running') await write(guest, '/mnt/vda/note', `text ${text}`);
      made = await increment(lab, guest, made);
      wanted.push(await diskHashes(lab, guest));
    };
    const added = await makePlainDisk(join(lab.world.node.pool(0).path, `${newId()}.qcow2`), {
      sizeBytes: 4 * MIB,
      dataBytes: MIB,
    });
    await virsh('attach-disk', guest.name, added, 'vdx', '--subdriver', 'qcow2', '--live', '--config');
    await again();
    expect(made.manifest.disks).toHaveLength(2);
    await virsh('blockresize', guest.name, 'vdx', '8M');
    await again();
    expect(made.manifest.disks[1].virtualSizeBytes).toBe(8 * MIB);
    await virsh('detach-disk', guest.name, 'vdx', '--live', '--config');
    await waitFor('the disk to go', async () => !(await guest.xml()).includes("'vdx'"), 120_000);
    await again();
    expect(made.manifest.disks).toHaveLength(1);
    await guest.destroy();
    await again();
    expect(made.manifest.states.at(-1).consistency).toBe('off');
    await (await guest.start()).waitForAgent();
    await again();
    await compareStates(lab, made.path, wanted);
    expect(await guest.snapshots()).toHaveLength(3);
    await guest.destroy();
  });
});

test('firmware variables and TPM state go in with each state', async () => {
  const defined = await lab.world.defineTiny({ uefi: true, tpm: true });
  const vars = join(lab.world.dir, 'nvram', 'own_VARS.fd');
  const xml = (await defined.xml(true)).replace(
    /<nvram([^>]*)(\/>|>[^<]*<\/nvram>)/,
    `<nvram$1>${vars}</nvram>`,
  );
  const guest = await defineGuest(lab.world.node, defined.name, xml);
  // both are made by the first start
  await guest.start();
  await guest.destroy();
  let made = await firstBackup(lab, guest);
  made = await increment(lab, guest, made);
  const names = made.manifest.members.map(({ name }: { name: string }) => name);
  const wanted = ['0001_nvram.fd', '0001_tpm.tar', '0002_nvram.fd', '0002_tpm.tar'];
  expect(names).toEqual(expect.arrayContaining(wanted));
  expect(made.manifest.states[1]).toMatchObject({
    nvram: { member: '0002_nvram.fd' },
    tpm: { member: '0002_tpm.tar' },
  });
});

test("a thin clone: the template stays outside, each increment brings the clone's layers", async () => {
  const template = await lab.world.defineTiny({ idle: true });
  const base = (await template.disks()).vda!;
  const path = join(lab.world.node.pool(0).path, `${newId()}.qcow2`);
  await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', base, '-F', 'qcow2', path]);
  const parent = `<virtkeep:domain xmlns:virtkeep='urn:virtkeep:domain:1'><virtkeep:parent id='${await template.uuid()}' version='0'/></virtkeep:domain>`;
  const guest = await lab.world.defineTiny({ disks: [{ path }], idle: true, metadata: parent });
  let made = await firstBackup(lab, guest);
  const wanted = [await diskHashes(lab, guest)];
  for (let count = 0; count < 4; count += 1) {
    await run(['qemu-io', '-c', `write -P ${count + 1} ${count}M 64k`, (await guest.disks()).vda!]);
    made = await increment(lab, guest, made);
    wanted.push(await diskHashes(lab, guest));
  }
  expect(made.manifest.disks[0]).toMatchObject({ base: { path: base } });
  expect(made.manifest.members.some(({ kind }: { kind: string }) => kind === 'disk')).toBe(false);
  await compareStates(lab, made.path, wanted);
});
