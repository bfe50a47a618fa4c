// The temporary state of a backup is merged away, whatever was done to the guest since it was made: nothing written is lost.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, rmSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import { NO_OTHER_NODES } from '../../../agent/src/other-nodes.ts';
import { markOf, removeAutomaticState } from '../../../agent/src/snapshots/index.ts';
import type { Guest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { SnapshotLab } from './lab.ts';
import { makeState, signal } from './merge-lab.ts';

/** A merge as slow as this has not ended when it is looked at. */
const SLOWEST_MIB = 0.0001;

let lab: SnapshotLab;
/** What the log said of merges that did not go at once. */
const said: unknown[] = [];
const note = (...words: unknown[]) => void said.push(words);
const log = { debug() {}, info() {}, warn: note, error: note } as unknown as Logger;
beforeAll(async () => {
  lab = await SnapshotLab.start();
});
afterAll(() => lab?.stop());

describe('the temporary state of a backup', () => {
  const overlayOf = async (guest: Guest, target: string) => (await guest.disks())[target]!;

  /** A guest whose two disks were written to since its temporary state was made. */
  async function begun(power: 'running' | 'off') {
    const guest = await lab.plainGuest(['qcow2', 'raw']);
    if (power === 'running') await guest.start();
    const originals = await guest.disks();
    const domainId = await lab.uuid(guest);
    const name = `virtkeep-tmp-${newId()}`;
    await makeState(lab, guest, name);
    for (const target of ['vda', 'vdb']) await lab.write(guest, target, 3);
    const overlays = await Promise.all(
      ['vda', 'vdb'].map(async targetDev => ({ targetDev, path: await overlayOf(guest, targetDev) })),
    );
    return { guest, originals, state: { domainId, name, overlays, noted: true } };
  }

  type Begun = Awaited<ReturnType<typeof begun>>;
  const removeTemporary = (
    { state }: Begun,
    options: Partial<Parameters<typeof removeAutomaticState>[2]> = {},
  ) =>
    removeAutomaticState(lab.lab.dependencies, state, {
      signal,
      log,
      warn() {},
      foreignJobPatienceMs: 0,
      ...options,
    });

  async function define(xml: string): Promise<void> {
    await lab.libvirt.defineDomain(xml);
  }

  const withoutDisk = (xml: string, target: string) =>
    xml.replace(/<disk .*?<\/disk>\s*/gs, disk => (disk.includes(`<target dev='${target}'`) ? '' : disk));
  const onScsi = (xml: string, target: string) =>
    xml.replace(/<disk .*?<\/disk>\s*/gs, disk =>
      disk.includes(`<target dev='${target}'`)
        ? disk
            .replace(/<target dev='[^']*' bus='[^']*'\/>/, "<target dev='sda' bus='sata'/>")
            .replace(/<address .*?\/>/s, '')
        : disk,
    );

  test.each(['running', 'off'] as const)(
    'leaves its layers to an internal state that somebody made in them, until that is gone (%s)',
    async power => {
      const test = await begun(power);
      const { guest, originals, state } = test;
      await lab.world.node.virsh('snapshot-create-as', guest.name, 'inner');
      const atInner = await lab.contents(guest);
      for (const target of ['vda', 'vdb']) await lab.write(guest, target, 5);
      const now = await lab.contents(guest);
      const told: string[] = [];
      await removeTemporary(test, { warn: text => void told.push(text) });
      expect(told).toEqual(state.overlays.map(({ path }) => expect.stringContaining(path)));
      expect([await guest.snapshots(), await lab.contents(guest)]).toEqual([['inner'], now]);
      // the next backup's layers go into those
      await makeState(lab, guest, 'virtkeep-tmp-next');
      const next = await Promise.all(
        ['vda', 'vdb'].map(async targetDev => ({ targetDev, path: await overlayOf(guest, targetDev) })),
      );
      await lab.write(guest, 'vda', 6);
      const later = await lab.contents(guest);
      await removeTemporary({ ...test, state: { ...state, name: 'virtkeep-tmp-next', overlays: next } });
      expect(await lab.contents(guest)).toEqual(later);
      await lab.revert(guest, 'inner');
      expect(await lab.contents(guest)).toEqual(atInner);
      await lab.remove(guest, 'inner');
      expect([await guest.disks(), await lab.contents(guest)]).toEqual([originals, atInner]);
      for (const { path } of state.overlays) expect(existsSync(path)).toBe(false);
      if (power === 'running') await guest.destroy();
    },
  );

  describe('whose merge stands still', () => {
    const standsStill = async (
      place: 'at the top' | 'below another state' = 'at the top',
      { bandwidthMiB, stalledJobPatienceMs } = { bandwidthMiB: 1, stalledJobPatienceMs: 5_000 },
    ) => {
      const test = await begun('running');
      const { guest } = test;
      for (let block = 0; block < 30; block += 1) await lab.write(guest, 'vda', block);
      if (place === 'below another state') await makeState(lab, guest, 'later');
      const contents = await lab.contents(guest);
      const ask = async (execute: string, args = {}) => {
        const request = JSON.stringify({ execute, arguments: args });
        return JSON.parse(await lab.world.node.virsh('qemu-monitor-command', guest.name, request)).return;
      };
      // slow enough to be met
      const agent = new AbortController();
      const removed = removeTemporary(test, { bandwidthMiB, stalledJobPatienceMs, signal: agent.signal });
      removed.catch(() => {});
      const isThere = async () => (await ask('query-jobs'))[0]?.id as string | undefined;
      const id = await waitFor('the merge', isThere, 60_000, 1);
      const isMerged = async () => {
        if (place === 'at the top') expect(await guest.disks()).toEqual(test.originals);
        // the log is there to be shown when something is left
        const left = test.state.overlays.filter(({ path }) => existsSync(path));
        expect({ left, log: said }).toEqual({ left: [], log: expect.anything() });
        expect(await lab.contents(guest)).toEqual(contents);
      };
      return { test, ask, removed, id, agent, isMerged };
    };

    test('is merged by another job', async () => {
      const { ask, removed, id, isMerged } = await standsStill();
      await ask('block-job-set-speed', { device: id, speed: 1 });
      await removed;
      await isMerged();
    });

    test('is told when it is one below the top that an agent before this one began, and merged later', async () => {
      // the agent goes before it loses patience, and before the job ends, on however busy a machine
      const { removed, ask, test, agent, id, isMerged } = await standsStill('below another state', {
        bandwidthMiB: SLOWEST_MIB,
        stalledJobPatienceMs: 600_000,
      });
      agent.abort();
      // by what it does at that moment it is a call of libvirt that ends, or what comes between two
      const end: unknown = await removed.catch((error: unknown) => error);
      expect(hasKey(end, 'canceled') ? agent.signal.reason : end).toMatchObject({ name: 'AbortError' });
      await expect(removeTemporary(test, { stalledJobPatienceMs: 2_000 })).rejects.toMatchObject({
        msgKey: 'merge_failed',
        params: { reason: expect.stringContaining('stands still') },
      });
      expect(await ask('query-jobs')).toMatchObject([{ id }]);
      await ask('block-job-set-speed', { device: id, speed: 0 });
      await removeTemporary(test);
      await isMerged();
    });

    test('is told when its job cannot be ended, and merged later', async () => {
      const { test, ask, removed, id, isMerged } = await standsStill('at the top', {
        bandwidthMiB: SLOWEST_MIB,
        stalledJobPatienceMs: 20_000,
      });
      await ask('job-pause', { id });
      await expect(removed).rejects.toMatchObject({ msgKey: 'merge_failed' });
      await ask('job-resume', { id });
      await ask('block-job-set-speed', { device: id, speed: 0 });
      await removeTemporary(test);
      await isMerged();
    });
  });

  test.each(['off', 'running', 'started again'] as const)(
    'loses nothing of a disk that got another target and bus (%s)',
    async power => {
      const test = await begun(power === 'off' ? 'off' : 'running');
      const { guest, originals, state } = test;
      const contents = await lab.contents(guest);
      await define(onScsi(await guest.xml(true), 'vdb'));
      if (power === 'started again') {
        await guest.destroy();
        await guest.start();
      }
      await removeTemporary(test);
      if (power === 'running') await guest.destroy();
      const disks = Object.values(await guest.disks()).sort();
      expect(disks).toEqual(Object.values(originals).sort());
      expect(await lab.hash(originals.vdb!, 'raw')).toBe(contents.vdb);
      expect(await lab.hash(originals.vda!, 'qcow2')).toBe(contents.vda);
      for (const { path } of state.overlays) expect(existsSync(path)).toBe(false);
      expect(await guest.snapshots()).toEqual([]);
      if (power !== 'started again') await guest.start();
      await guest.destroy();
    },
  );

  test.each(['has run it since', 'runs it'])('stays beside what another node has that %s', async what => {
    const { guest, originals, state } = await begun('running');
    const { dependencies } = lab.lab;
    const marks = { vda: await markOf(originals.vda!), vdb: await markOf(originals.vdb!) };
    await guest.destroy();
    const by = { nodeName: 'two', domainId: state.domainId, domainName: guest.name, active: true };
    if (what === 'runs it')
      dependencies.otherNodes = { whoUses: async things => things.map(() => ({ kind: 'used', by })) };
    else await run(['qemu-io', '-f', 'qcow2', '-c', 'write -P 9 0 64k', originals.vda!]);
    const files = [...Object.entries(originals), ...state.overlays.map(({ path }) => ['', path])];
    const hashes = () => Promise.all(files.map(async ([, path]) => (await run(['sha256sum', path!])).stdout));
    const before = await hashes();
    const left: string[] = [];
    const overlays = state.overlays.map(overlay => ({
      ...overlay,
      mark: marks[overlay.targetDev as 'vda']!,
    }));
    const warn = (text: string) => left.push(text);
    await removeAutomaticState(dependencies, { ...state, overlays }, { signal, log: dependencies.log, warn });
    dependencies.otherNodes = NO_OTHER_NODES;
    expect(await hashes()).toEqual(before);
    expect(left).toHaveLength(2);
    expect(await guest.snapshots()).toEqual([]);
  });

  test('loses nothing of a disk that was taken away', async () => {
    const test = await begun('off');
    const contents = await lab.contents(test.guest);
    await define(withoutDisk(await test.guest.xml(true), 'vdb'));
    await removeTemporary(test);
    expect(await lab.hash(test.originals.vdb!, 'raw')).toBe(contents.vdb);
    expect(await lab.contents(test.guest)).toEqual({ vda: contents.vda });
    expect(lab.files().filter(name => name.includes('virtkeep-tmp'))).toEqual([]);
  });

  test.each(['off', 'running'] as const)(
    'loses nothing of a disk that was moved to another VM, which is %s',
    async power => {
      const test = await begun('off');
      const other = await lab.plainGuest(['qcow2']);
      const contents = await lab.contents(test.guest);
      const [, moved] = test.state.overlays;
      await define(withoutDisk(await test.guest.xml(true), 'vdb'));
      const disk = `<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${moved!.path}'/><target dev='vdc' bus='virtio'/></disk>`;
      await define((await other.xml(true)).replace('</devices>', `${disk}</devices>`));
      if (power === 'running') await other.start();
      await removeTemporary(test);
      expect(await lab.contents(test.guest)).toEqual({ vda: contents.vda });
      expect(await lab.contents(other)).toMatchObject({ vdc: contents.vdb });
      expect(await test.guest.snapshots()).toEqual([]);
      if (power === 'off') await other.start();
      await other.destroy();
    },
  );

  test('keeps what was written since, when its disk is used without that', async () => {
    const test = await begun('off');
    const { vdb } = await lab.contents(test.guest);
    const [, { path }] = test.state.overlays as [unknown, { path: string }];
    const xml = await test.guest.xml(true);
    const back = xml.replace(path, test.originals.vdb!).replace(/<backingStore.*?<\/backingStore>/gs, '');
    await define(back.replace(/type='qcow2'(?=\/>\s*<source file='[^']*\.raw')/g, "type='raw'"));
    await removeTemporary(test);
    expect(await lab.hash(path, 'qcow2')).toBe(vdb);
    expect(await test.guest.snapshots()).toEqual([]);
  });

  test("waits for a copy that somebody else's job makes, and never switches to it", async () => {
    const test = await begun('running');
    const { guest, originals } = test;
    const copy = `${originals.vda}.copy`;
    await lab.world.node.virsh('blockcopy', guest.name, 'vda', copy, '--wait', '--transient-job', '--format', 'qcow2');
    await lab.write(guest, 'vda', 7);
    const contents = await lab.contents(guest);
    await expect(removeTemporary(test)).rejects.toMatchObject({
      msgKey: 'merge_failed',
      params: { reason: expect.stringContaining('copy job') },
    });
    expect(await overlayOf(guest, 'vda')).not.toBe(copy);
    expect(await lab.world.node.virsh('blockjob', guest.name, 'vda', '--raw')).toContain('type=Block Copy');
    await lab.world.node.virsh('blockjob', guest.name, 'vda', '--abort');
    await removeTemporary(test);
    expect(await guest.disks()).toEqual(originals);
    expect(await lab.contents(guest)).toEqual(contents);
    rmSync(copy);
    await guest.destroy();
  }); // biome-ignore format: one command

  test("waits for somebody else's commit, and goes on where that was broken off", async () => {
    const test = await begun('running');
    const { guest, originals } = test;
    await lab.world.node.virsh('blockcommit', guest.name, 'vda', '--active', '--wait', '--verbose');
    const contents = await lab.contents(guest);
    await expect(removeTemporary(test)).rejects.toMatchObject({ msgKey: 'merge_failed' });
    expect(await overlayOf(guest, 'vda')).toBe(test.state.overlays[0]!.path);
    await lab.world.node.virsh('blockjob', guest.name, 'vda', '--abort');
    await removeTemporary(test);
    expect(await guest.disks()).toEqual(originals);
    expect(await lab.contents(guest)).toEqual(contents);
    await guest.destroy();
  });

  test('changes nothing while a process that libvirt does not know has the disk open', async () => {
    const test = await begun('off');
    const contents = await lab.contents(test.guest);
    const path = await overlayOf(test.guest, 'vda');
    const user = spawn('qemu-io', ['-f', 'qcow2', path], { stdio: ['pipe', 'pipe', 'ignore'] });
    try {
      await once(user.stdout, 'data');
      await expect(removeTemporary(test)).rejects.toMatchObject({ msgKey: 'merge_failed' });
      expect(await lab.contents(test.guest)).toEqual(contents);
    } finally {
      user.stdin.end();
      await once(user, 'close');
    }
    await removeTemporary(test);
    expect(await lab.contents(test.guest)).toEqual(contents);
    expect(await test.guest.disks()).toEqual(test.originals);
  });

  test('merges one layer deep, and goes on after its own merge was interrupted', async () => {
    const test = await begun('running');
    const { guest, originals, state } = test;
    await lab.write(guest, 'vda', 9);
    const contents = await lab.contents(guest);
    const stop = new AbortController();
    const { log } = lab.lab.dependencies;
    const progress = { total() {}, done: () => stop.abort(new VirtkeepError('interrupted')) };
    const slowly = { signal: stop.signal, log, warn() {}, bandwidthMiB: 0.2, progress };
    await expect(removeAutomaticState(lab.lab.dependencies, state, slowly)).rejects.toMatchObject({
      msgKey: 'interrupted',
    });
    await removeTemporary(test);
    expect(await guest.disks()).toEqual(originals);
    expect(await lab.contents(guest)).toEqual(contents);
    await lab.check(guest);
    await guest.destroy();
  });
});
