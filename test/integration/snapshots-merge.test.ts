import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../agent/src/domain-xml/index.ts';
import { createState, mergeState, planState } from '../../agent/src/snapshots/index.ts';
import type { Guest } from '../lab/guest.ts';
import { SnapshotLab } from './snapshots-lab.ts';

let lab: SnapshotLab;
beforeAll(async () => {
  lab = await SnapshotLab.start();
});
afterAll(() => lab?.stop());

const signal = new AbortController().signal;

async function makeState(guest: Guest, name: string): Promise<void> {
  const domain = lab.libvirt.domain(await guest.uuid(), guest.name);
  const { disks } = parseDomain(await domain.xml());
  const plan = planState(
    guest.name,
    { name, operationId: newId(), mode: 'disks' },
    disks.map(({ targetDev, path }) => ({ targetDev, path: path!, block: false, wanted: true })),
    lab.world.node.pool(0).path,
  );
  await createState(domain, plan, '', signal, { total() {}, done() {} });
}

async function remove(guest: Guest, name: string): Promise<void> {
  await mergeState(
    lab.libvirt,
    { domainId: await guest.uuid(), name, countsAsDeletion: true },
    { signal, log: lab.lab.dependencies.log },
  );
}

describe.each(['running', 'off'])('deleting a state of a guest that is %s', power => {
  test.each([
    ['oldest', ['s1', 's2', 's3']],
    ['middle', ['s2', 's1', 's3']],
    ['latest', ['s3', 's2', 's1']],
  ])('the %s first', async (_name, order) => {
    const guest = await lab.plainGuest(['qcow2', 'raw']);
    const before = lab.files();
    if (power === 'running') await guest.start();
    for (const [index, name] of ['s1', 's2', 's3'].entries()) {
      await makeState(guest, name);
      await lab.write(guest, 'vda', index);
      await lab.write(guest, 'vdb', index + 2);
    }
    const contents = await lab.contents(guest);
    const kept = await lab.statesContents(guest);
    for (const name of order) {
      await remove(guest, name);
      delete kept[name];
      expect(await lab.contents(guest)).toEqual(contents);
      expect(await lab.statesContents(guest)).toEqual(kept);
      await lab.check(guest);
    }
    expect(lab.files()).toEqual(before);
    const { metadata } = parseDomain(await guest.xml());
    expect(metadata).toMatchObject({ statesDeleted: expect.any(Date) });
    expect(metadata.looseLayers ?? []).toEqual([]);
    expect(metadata.removedStates).toHaveLength(3);
    if (power === 'running') await guest.destroy();
    await guest.start();
    await guest.destroy();
  });
});
