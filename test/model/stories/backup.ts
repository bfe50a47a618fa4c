/** Backups: a full one, of a VM that is off or runs, and an increment. */
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { newId } from '@virtkeep/shared/ids';
import { openArchive, verifyArchive } from '../../../agent/src/archive/index.ts';
import { NO_METADATA, parseDomain, parseSnapshot } from '../../../agent/src/domain-xml/index.ts';
import { incrementTag, writeMetadata } from '../../../agent/src/snapshots/index.ts';
import { backupWorkflow } from '../../../agent/src/workflows/backup/backup.ts';
import type { Machine } from '../scripted-machine.ts';
import type { BuildStory } from '../undo-model.ts';
import type { World } from '../world.ts';
import { makeBackup, makeState } from './perform.ts';
import { isUndone, lives, makeVm, type Vm } from './vm.ts';

const archivesOf = (world: World): string[] =>
  readdirSync(world.backups)
    .filter(name => /^[^.].*\.tar(\.zst)?$/.test(name))
    .map(name => join(world.backups, name));

export const hashOfFile = (path: string): string =>
  createHash('sha256').update(readFileSync(path)).digest('hex');

/** All files but the memory of states that are there: one that cannot be quiesced is made with it. */
function withoutMemory(world: World, { states }: Machine): string[] {
  const kept = [...states.values()].map(xml => parseSnapshot(xml).memory.path);
  return world.files().filter(path => !kept.includes(join(world.root, path)));
}

export const fullBackup: BuildStory = async (world, random) => {
  const running = random(3) > 0;
  // without an agent its memory is saved
  const agent = random(3) > 0;
  const vm = await makeVm(world, { running, agent });
  const { machine } = vm;
  await vm.write(0, 1);
  if (random(2)) {
    await makeState(world, machine.uuid, 'mine');
    await vm.write(1, 2);
  }
  const then = await vm.view();
  let now = then;
  const files = world.files();
  const states = [...machine.states.keys()];
  const tops = vm.tops();
  const canBeIncremental = random(2) === 1;
  const options = { canBeIncremental, compress: random(3) === 0, hashSum: random(2) === 1 };
  const told: string[] = [];
  world.hooks = { run: async phase => void told.push(phase) };
  return {
    kind: 'backup',
    points: 300,
    workflow: operationId =>
      backupWorkflow(
        world.dependencies,
        StartBackupRequest.fromPartial({ operationId, domainId: machine.uuid, fileId: newId(), ...options }),
      ),
    undone: effect => isUndone(world, effect),
    async safe(committed) {
      expect(await vm.view()).toEqual(now);
      if (committed) expect(await world.archived(archivesOf(world)[0]!)).toEqual(then);
    },
    async settled(committed) {
      expect(machine.frozen).toBe(false);
      if (committed) expect(told.at(-1)).toBe('backup-end');
      else if (told.includes('backup-start')) expect(told.at(-1)).toBe('backup-abort');
      const made = [...machine.states.keys()].filter(name => !states.includes(name));
      expect(made).toHaveLength(committed && canBeIncremental ? 1 : 0);
      if (!committed || !canBeIncremental) expect(vm.tops()).toEqual(tops);
      const added = withoutMemory(world, machine).filter(path => !files.includes(path));
      const wanted = committed ? 1 + (options.hashSum ? 1 : 0) + (canBeIncremental ? 2 : 0) : 0;
      expect([added, added.length]).toEqual([added, wanted]);
      expect(files.filter(path => !world.files().includes(path))).toEqual([]);
    },
    async life() {
      await lives(vm, world, random);
      now = await vm.view();
    },
  };
};

/** A state of an archive that can never be extended again: the next increment of another one merges it. */
async function makeAbandoned(world: World, { machine, write }: Vm): Promise<void> {
  const domain = await world.scripted.libvirt.domainByUuid(machine.uuid);
  await makeState(world, machine.uuid, 'abandoned');
  const description = `<description>${incrementTag(newId(), 1)}</description>`;
  const xml = machine.states.get('abandoned')!;
  const bare = xml.replace(/<description>[^<]*<\/description>|<description\/>/, '');
  machine.states.set('abandoned', bare.replace('</name>', `</name>${description}`));
  await writeMetadata(domain, { ...NO_METADATA, statesDeleted: new Date() });
  await write(2, 9);
}

export const increment: BuildStory = async (world, random) => {
  const vm = await makeVm(world, { running: random(3) > 0, agent: true });
  const { machine } = vm;
  await vm.write(0, 1);
  const hasAbandoned = random(2) === 1;
  if (hasAbandoned) await makeAbandoned(world, vm);
  const compress = random(3) === 0;
  const base = await makeBackup(world, machine.uuid, {
    ...{ canBeIncremental: true, compress, holdStates: true },
  });
  const [former, formerHash] = [await vm.view(), hashOfFile(base.path)];
  await vm.write(1, 3);
  const then = await vm.view();
  let now = then;
  const files = world.files();
  const tops = vm.tops();
  const holdStates = random(3) === 0;
  const isMerged = hasAbandoned && !holdStates;
  return {
    kind: 'backup',
    points: 200,
    workflow: operationId =>
      backupWorkflow(
        world.dependencies,
        StartBackupRequest.fromPartial({
          ...{ operationId, domainId: machine.uuid, fileId: newId(), holdStates },
          ...{ extend: base.ref, extendFileId: base.id, canBeIncremental: true },
        }),
      ),
    async undone(effect, committed) {
      await isUndone(world, effect);
      if (effect.type === 'appended_archive' && !committed) expect(hashOfFile(base.path)).toBe(formerHash);
    },
    async safe(committed) {
      expect(await vm.view()).toEqual(now);
      const hasTail = readdirSync(world.backups).some(name => name.endsWith('.tail'));
      if (committed) expect(await world.archived(base.path)).toEqual(then);
      // with it the old end is put back before anybody else extends the archive
      else if (!hasTail) expect([former, then]).toContainEqual(await world.archived(base.path));
    },
    async settled(committed) {
      expect(machine.frozen).toBe(false);
      if (!committed) {
        expect(hashOfFile(base.path)).toBe(formerHash);
        expect(world.files()).toEqual(files);
        expect(vm.tops()).toEqual(tops);
        return;
      }
      expect(vm.tops()).not.toEqual(tops);
      const { looseLayers = [] } = parseDomain(machine.live ?? machine.config!).metadata;
      const isLeft = machine.states.has('abandoned') || looseLayers.length > 0;
      if (!isMerged) expect(withoutMemory(world, machine)).toHaveLength(files.length + 2);
      else if (!isLeft) expect(withoutMemory(world, machine)).toHaveLength(files.length);
    },
    async life() {
      await lives(vm, world, random);
      now = await vm.view();
    },
  };
};

/** An increment of an archive that is to have another form, or hashes, or both: all of it, or the archive of before. */
export const extendOtherwise: BuildStory = async (world, random) => {
  const vm = await makeVm(world, { running: random(3) > 0, agent: true });
  const { machine } = vm;
  await vm.write(0, 1);
  const compress = random(2) === 1;
  const hashSum = random(3) === 0;
  const base = await makeBackup(world, machine.uuid, { canBeIncremental: true, compress, hashSum });
  const extendCompressed = random(3) > 0 ? !compress : undefined;
  const extendHashed = extendCompressed === undefined || random(2) === 1 ? true : undefined;
  const former = hashOfFile(base.path);
  await vm.write(1, 3);
  const then = await vm.view();
  let now = then;
  const files = world.files();
  const tops = vm.tops();
  return {
    kind: 'backup',
    points: 260,
    workflow: operationId =>
      backupWorkflow(
        world.dependencies,
        StartBackupRequest.fromPartial({
          ...{ operationId, domainId: machine.uuid, fileId: newId(), canBeIncremental: true },
          ...{ extend: base.ref, extendFileId: base.id, extendCompressed, extendHashed },
        }),
      ),
    async undone(effect, committed) {
      await isUndone(world, effect);
      if (effect.type === 'appended_archive' && !committed) expect(hashOfFile(base.path)).toBe(former);
    },
    async safe(committed) {
      expect(await vm.view()).toEqual(now);
      const hasTail = readdirSync(world.backups).some(name => name.endsWith('.tail'));
      const converted = archivesOf(world).filter(path => path !== base.path);
      if (committed) expect(await world.archived(converted[0] ?? base.path)).toEqual(then);
      else if (extendCompressed !== undefined) expect(hashOfFile(base.path)).toBe(former);
      else if (!hasTail) await world.archived(base.path);
    },
    async settled(committed) {
      expect(machine.frozen).toBe(false);
      if (!committed) {
        expect(hashOfFile(base.path)).toBe(former);
        expect([world.files(), vm.tops()]).toEqual([files, tops]);
        return;
      }
      const [path, ...others] = archivesOf(world);
      expect([path!.endsWith('.zst'), others]).toEqual([extendCompressed ?? compress, []]);
      const added = (hashSum || !extendHashed ? 0 : 1) + 2;
      expect(withoutMemory(world, machine)).toHaveLength(files.length + added);
      if (hashSum || extendHashed) await expectHashed(path!);
    },
    async life() {
      await lives(vm, world, random);
      now = await vm.view();
    },
  };
};

/** Each member has its SHA-256, in the manifest and in the hash file; they are those of what it holds. */
async function expectHashed(path: string): Promise<void> {
  const signal = AbortSignal.timeout(60_000);
  const { problems, hashed } = await verifyArchive(path, { signal });
  expect({ problems, hashed }).toEqual({ problems: [], hashed: true });
  const archive = await openArchive(path, signal);
  await archive.close();
  const names = archive.members.map(({ name }) => name);
  const lines = readFileSync(`${path}.sha256`, 'utf8').trim().split('\n');
  expect(lines.map(line => line.slice(66))).toEqual(names);
}
