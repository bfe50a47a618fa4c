// Deleting a state of a guest, in whatever order: each disk and each other state keeps what it had, and nothing is left over.

import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { readLayers } from '../../../agent/src/disks/index.ts';
import { parseDomain } from '../../../agent/src/domain-xml/index.ts';
import { LENDING_STATE, markOf, mergeState, noteLent } from '../../../agent/src/snapshots/index.ts';
import type { Guest } from '../../lab/guest.ts';
import { SnapshotLab } from './lab.ts';
import { makeState, signal } from './merge-lab.ts';

let lab: SnapshotLab;
beforeAll(async () => {
  lab = await SnapshotLab.start();
});
afterAll(() => lab?.stop());

async function remove(guest: Guest, name: string): Promise<void> {
  await mergeState(
    lab.lab.dependencies,
    { domainId: await lab.uuid(guest), name, countsAsDeletion: true },
    { signal, log: lab.lab.dependencies.log, warn() {} },
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
      await makeState(lab, guest, name);
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

test.each(['running', 'off'])(
  'a merge below what is lent is no write to it, of a guest that is %s',
  async power => {
    const guest = await lab.plainGuest(['qcow2']);
    await guest.start();
    for (const [index, name] of ['s1', 's2', LENDING_STATE].entries()) {
      await makeState(lab, guest, name);
      await lab.write(guest, 'vda', index);
    }
    const domain = lab.libvirt.domain(await lab.uuid(guest), guest.name);
    const [top, lent] = await readLayers(parseDomain(await domain.xml()).disks[0]!.path!, 'qcow2');
    const mark = (await markOf(lent!.path))!;
    await noteLent(domain, [{ path: top!.path, below: lent!.path, mark }]);
    if (power === 'off') await guest.destroy();
    const expectNoted = async () => {
      const below = (await readLayers(top!.path, 'qcow2'))[1]!.path;
      const noted = { path: top!.path, below, mark: await markOf(below) };
      expect(parseDomain(await domain.xml()).metadata.lentLayers).toEqual([noted]);
    };
    for (const name of ['s1', 's2']) {
      await remove(guest, name);
      await expectNoted();
      expect(await markOf(lent!.path).catch(() => null)).not.toBe(mark);
    }
    if (power === 'running') await guest.destroy();
    await expectNoted();
    await remove(guest, LENDING_STATE);
    const { lentLayers = [], looseLayers = [] } = parseDomain(await domain.xml()).metadata;
    expect([lentLayers, looseLayers]).toEqual([[], []]);
  },
);
