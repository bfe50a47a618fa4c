/** A VM that is started from its archive, and pulls its data out of it. */
import { chmodSync, chownSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../../agent/src/domain-xml/index.ts';
import type { Workflow } from '../../../agent/src/workflows/context.ts';
import type { Effect, InstantDisk } from '../../../agent/src/workflows/effect.ts';
import { instantRestoreWorkflow } from '../../../agent/src/workflows/restore/instant/instant-restore.ts';
import { run } from '../../lab/run.ts';
import type { BuildStory } from '../undo-model.ts';
import type { World } from '../world.ts';
import { hashOfFile } from './backup.ts';
import { makeBackup, makeState } from './perform.ts';
import { isUndone, makeVm, vmOf } from './vm.ts';

/** QEMU's user, who is nobody else on this machine. */
const QEMU = 64_321;
const CAPABILITIES = `<capabilities><secmodel><model>dac</model>
  <baselabel type='kvm'>+${QEMU}:+${QEMU}</baselabel></secmodel></capabilities>`;

/** What QEMU does while the VM runs: what the overlay has not is read through its chain. */
async function pullLive(world: World, top: string): Promise<void> {
  const whole = join(world.root, 'pulled');
  writeFileSync(whole, world.bytes(top));
  await run(['qemu-img', 'rebase', '-q', '-u', '-f', 'qcow2', '-F', 'raw', '-b', whole, top]);
  await run(['qemu-img', 'rebase', '-q', '-f', 'qcow2', '-b', '', top]);
  rmSync(whole);
}

/** The chain stands in the definition alone: what the world must know to read and to write as the guest does. */
function learnChain(world: World, disks: InstantDisk[], bytes: readonly Buffer[]): void {
  for (const [index, { overlayPath }] of disks.entries()) {
    const whole = join(world.root, `archived-${index}`);
    writeFileSync(whole, bytes[index]!);
    const chain = { driver: 'raw', file: { driver: 'file', filename: whole } };
    world.unfinished.set(overlayPath, { bytes: bytes[index]!, chain });
  }
}

export const instantRestore: BuildStory = async (world, random) => {
  world.scripted.capabilities = CAPABILITIES;
  world.scripted.pull = top => pullLive(world, top);
  const original = await makeVm(world, { running: false });
  const { machine } = original;
  await original.write(0, 1);
  if (random(2)) {
    await makeState(world, machine.uuid, 'mine');
    await original.write(1, 2);
  }
  const backup = await makeBackup(world, machine.uuid);
  const mode = random(2) === 0 ? 0o600 : 0o640;
  chmodSync(backup.path, mode);
  chownSync(backup.path, 0, random(2) === 0 ? 0 : QEMU);
  const { gid } = statSync(backup.path);
  const archiveHash = hashOfFile(backup.path);
  let then = await original.view();
  const bytes = original.tops().map(path => world.bytes(path));
  const files = world.files();
  const domainId = newId();
  const restored = () => world.scripted.machines.get(domainId);
  const vm = () => vmOf(world, restored()!);
  return {
    kind: 'restore',
    points: 110,
    workflow: operationId => {
      const request = { operationId, file: backup.ref, fileId: backup.id, domainId, instant: true };
      const workflow = instantRestoreWorkflow(world.dependencies, StartRestoreRequest.fromPartial(request));
      return observed(workflow, effect => {
        if (effect.type === 'instant_pull') learnChain(world, effect.disks, bytes);
      });
    },
    async undone(effect) {
      await isUndone(world, effect);
      if (effect.type !== 'archive_access' || restored() === undefined) return;
      // QEMU's user reads the archive until nothing stands on it
      const chains = vm()
        .tops()
        .map(path => world.backingOf(path));
      expect(chains).toEqual([null, null]);
    },
    async safe(committed) {
      expect(hashOfFile(backup.path)).toBe(archiveHash);
      if (committed) expect(await vm().view()).toEqual(then);
    },
    async settled(committed) {
      const { mode: modeNow, gid: gidNow } = statSync(backup.path);
      expect([modeNow & 0o777, gidNow]).toEqual([mode, gid]);
      if (!committed) {
        expect(world.files()).toEqual(files);
        expect(restored()).toBeUndefined();
        return;
      }
      expect(world.files()).toHaveLength(files.length + 2);
      // its images stand on nothing, and whoever reads them as they are reads what the guest does
      const disks = parseDomain(restored()!.config!).disks.filter(({ device }) => device === 'disk');
      expect(disks.map(({ backingChain }) => backingChain)).toEqual([undefined, undefined]);
      world.unfinished.clear();
      expect(await vm().view()).toEqual(then);
    },
    async life() {
      const found = restored();
      if (!found || found.live === null) return;
      await vm().write(20 + random(20), 1 + random(250));
      then = await vm().view();
      if (random(2)) world.scripted.powerOff(found);
    },
  };
};

/** The workflow, with a look at what it declares. */
function observed(workflow: Workflow, look: (effect: Effect) => void): Workflow {
  return context => {
    const { effects } = context;
    const begin: typeof effects.begin = (effect, when) => {
      look(effect);
      return effects.begin(effect, when);
    };
    return workflow({ ...context, effects: { begin } });
  };
}
