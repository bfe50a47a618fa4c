/** Archives in another form, and a VM that goes with its disks. */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { RecompressBackupRequest, TrimBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { verifyArchive } from '../../../agent/src/archive/index.ts';
import { removeDomain } from '../../../agent/src/workflows/domain/remove-domain.ts';
import { planRecompress, recompressWorkflow } from '../../../agent/src/workflows/files/recompress.ts';
import { trimWorkflow } from '../../../agent/src/workflows/restore-points/trim.ts';
import type { BuildStory } from '../undo-model.ts';
import { hashOfFile } from './backup.ts';
import { makeBackup, makeState } from './perform.ts';
import { isUndone, makeVm } from './vm.ts';

export const recompress: BuildStory = async (world, random) => {
  const vm = await makeVm(world, { running: false });
  await vm.write(0, 1);
  const then = await vm.view();
  const compress = random(2) === 1;
  const hashSum = random(2) === 1;
  const { path, ref, id } = await makeBackup(world, vm.machine.uuid, { compress: !compress, hashSum });
  const former = hashOfFile(path);
  const files = world.files();
  const made = () =>
    readdirSync(world.backups).find(
      name => !name.startsWith('.') && name.endsWith(compress ? '.tar.zst' : '.tar'),
    );
  return {
    kind: 'recompress',
    points: 55,
    workflow: operationId => {
      const request = RecompressBackupRequest.fromPartial({ operationId, file: ref, fileId: id, compress });
      const source = { pool: world.poolRecord, path, filename: ref.filename };
      const plan = planRecompress(request, { source }, [world.poolRecord], 'node');
      return recompressWorkflow(world.dependencies, request, plan);
    },
    undone: effect => isUndone(world, effect),
    async safe(committed) {
      if (existsSync(path)) expect(hashOfFile(path)).toBe(former);
      else expect(committed).toBe(true);
      if (committed) expect(await world.archived(join(world.backups, made()!))).toEqual(then);
    },
    async settled(committed) {
      expect(existsSync(path)).toBe(!committed);
      expect(made() !== undefined).toBe(committed);
      expect([world.files(), world.files().length]).toEqual([world.files(), files.length]);
    },
  };
};

/** The oldest restore points are dropped: one whole archive of that name, the old or the new one, and the VM as it was. */
export const trim: BuildStory = async (world, random) => {
  const vm = await makeVm(world, { running: random(2) === 1, agent: true });
  const { uuid } = vm.machine;
  await vm.write(0, 1);
  const options = { compress: random(2) === 1, hashSum: random(2) === 1 };
  const made = await makeBackup(world, uuid, { ...options, canBeIncremental: true });
  const { path, ref, id } = made;
  const shown = [await vm.view()];
  for (const number of [2, 3]) {
    await vm.write(number - 1, number);
    await makeBackup(world, uuid, { extend: ref, extendFileId: id, holdStates: true });
    shown.push(await vm.view());
  }
  const keepStates = 1 + random(2);
  const former = hashOfFile(path);
  const files = world.files();
  const [now, tops] = [await vm.view(), vm.tops()];
  return {
    kind: 'trim',
    points: 90,
    workflow: operationId => {
      const request = TrimBackupRequest.fromPartial({ operationId, file: ref, fileId: id, keepStates });
      const source = { pool: world.poolRecord, path, filename: ref.filename };
      return trimWorkflow(world.dependencies, request, source);
    },
    undone: effect => isUndone(world, effect),
    async safe(committed) {
      if (!committed) expect(hashOfFile(path)).toBe(former);
      expect(await world.archived(path, 3)).toEqual(shown[2]);
      expect(await vm.view()).toEqual(now);
    },
    async settled(committed) {
      expect([world.files(), vm.tops()]).toEqual([files, tops]);
      if (!committed) return expect(hashOfFile(path)).toBe(former);
      const { restorableStates, problems } = await verifyArchive(path, {
        signal: AbortSignal.timeout(60_000),
      });
      expect([restorableStates, problems]).toEqual([[1, 2, 3].slice(-keepStates), []]);
      for (const number of restorableStates)
        expect(await world.archived(path, number)).toEqual(shown[number - 1]);
    },
  };
};

export const removal: BuildStory = async (world, random) => {
  const running = random(2) === 1;
  const vm = await makeVm(world, { running, agent: true });
  const { machine } = vm;
  const other = await makeVm(world, { name: 'other', running: false });
  await vm.write(0, 1);
  if (random(2)) await makeState(world, machine.uuid, 'mine');
  const now = await vm.view();
  const files = world.files();
  const isThere = () => world.scripted.machines.has(machine.uuid);
  return {
    kind: 'remove_domain',
    points: 12,
    workflow: () => removeDomain(world.dependencies, { domainId: machine.uuid, full: true, force: true }),
    undone: effect => isUndone(world, effect),
    async safe(committed) {
      if (isThere()) expect([committed, await vm.view()]).toEqual([false, now]);
      expect(other.tops().every(path => existsSync(path))).toBe(true);
    },
    async settled() {
      expect(world.files()).toHaveLength(isThere() ? files.length : 2);
    },
  };
};
