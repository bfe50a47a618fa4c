// What an increment takes besides the changes of a disk of its own: firmware and TPM, and a thin clone's place on its template.
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { defineGuest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { WorkflowLab } from '../backup/lab.ts';
import { compareStates, diskHashes, firstBackup, increment } from './lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

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
