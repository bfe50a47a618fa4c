/** A VM without disks out of a domain XML. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { StartConfigRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../../agent/src/domain-xml/index.ts';
import { configRestoreWorkflow } from '../../../agent/src/workflows/config-restore/config-restore.ts';
import type { BuildStory } from '../undo-model.ts';
import { isUndone, lives, makeVm } from './vm.ts';

export const configRestore: BuildStory = async (world, random) => {
  const original = await makeVm(world, { running: random(2) === 1 });
  await original.write(0, 1);
  const [pool] = await world.dependencies.pools(AbortSignal.timeout(60_000));
  const directory = join(pool!.path!, 'backups');
  mkdirSync(directory, { recursive: true });
  writeFileSync(join(directory, 'vm.xml'), original.machine.config!);
  let now = await original.view();
  const files = world.files();
  const domainId = newId();
  const made = () => world.scripted.machines.get(domainId);
  const file = { poolId: pool!.id, filename: 'vm.xml' };
  return {
    kind: 'config_restore',
    points: 20,
    workflow: operationId =>
      configRestoreWorkflow(
        world.dependencies,
        StartConfigRestoreRequest.fromPartial({ operationId, file, fileId: newId(), domainId }),
      ),
    undone: effect => isUndone(world, effect),
    async safe() {
      expect(await original.view()).toEqual(now);
    },
    async settled(committed) {
      expect(made() !== undefined).toBe(committed);
      expect(world.files()).toEqual(files);
      if (committed) expect(parseDomain(made()!.config!).disks).toEqual([]);
    },
    async life() {
      await lives(original, world, random);
      now = await original.view();
    },
  };
};
