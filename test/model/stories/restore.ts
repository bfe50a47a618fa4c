/** Restores from an archive: a new VM beside the original, or in place of a lost one. */
import { rmSync } from 'node:fs';
import { expect } from '@jest/globals';
import { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { restoreWorkflow } from '../../../agent/src/workflows/restore/restore.ts';
import type { BuildStory } from '../undo-model.ts';
import { hashOfFile } from './backup.ts';
import { makeBackup, makeState } from './perform.ts';
import { isUndone, lives, makeVm, vmOf } from './vm.ts';

const restoreOf =
  (isInPlace: boolean): BuildStory =>
  async (world, random) => {
    const original = await makeVm(world, { running: random(2) === 1, agent: true });
    const { machine } = original;
    await original.write(0, 1);
    const hasState = random(3) > 0;
    if (hasState) {
      await makeState(world, machine.uuid, 'mine');
      await original.write(1, 2);
    }
    const compress = random(3) === 0;
    const backup = await makeBackup(world, machine.uuid, { compress, hashSum: random(2) === 1 });
    const archiveHash = hashOfFile(backup.path);
    const then = await original.view();
    if (isInPlace) {
      for (const path of world.files().filter(name => !name.includes('backups')))
        rmSync(`${world.root}/${path}`);
      world.scripted.machines.delete(machine.uuid);
    }
    let now = then;
    const files = world.files();
    const known = [...world.scripted.machines.keys()];
    const startOn = random(2) === 1;
    const flatten = random(3) === 0;
    const domainId = isInPlace ? machine.uuid : newId();
    const restored = () => world.scripted.machines.get(domainId);
    return {
      kind: 'restore',
      points: 100,
      workflow: operationId =>
        restoreWorkflow(
          world.dependencies,
          StartRestoreRequest.fromPartial({
            ...{ operationId, file: backup.ref, fileId: backup.id, domainId, startOn, flatten },
            keepIdentity: isInPlace,
          }),
        ),
      undone: effect => isUndone(world, effect),
      async safe(committed) {
        expect(hashOfFile(backup.path)).toBe(archiveHash);
        if (!isInPlace) expect(await original.view()).toEqual(now);
        if (committed) expect(await vmOf(world, restored()!).view()).toEqual(then);
      },
      async settled(committed) {
        if (!committed) {
          expect(world.files()).toEqual(files);
          expect([...world.scripted.machines.keys()]).toEqual(known);
          return;
        }
        expect(restored()!.live !== null).toBe(startOn);
        expect([...restored()!.states.keys()]).toEqual(hasState && !flatten ? ['mine'] : []);
        expect(world.files().length - files.length).toBe(hasState && !flatten ? 4 : 2);
      },
      async life() {
        if (isInPlace) return;
        await lives(original, world, random);
        now = await original.view();
      },
    };
  };

export const restoreNew: BuildStory = restoreOf(false);
export const restoreInPlace: BuildStory = restoreOf(true);
