/**
 * Histories of increments that hold no states, on a scripted libvirt: several archives of one VM side by side, in either form, some
 * removed again, a state held now and then, a state of the user's between them. After each increment at most two states of its archive
 * stay beside the current one, unless they are held, those of removed archives are gone, every state of every archive is what the guest had
 * written then, and so is the VM. `make test` plays one history, `make soak` (VIRTKEEP_UNDO_HISTORIES) a hundred.
 */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';
import { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { newId } from '@virtkeep/shared/ids';
import { parseSnapshot } from '../../agent/src/domain-xml/index.ts';
import { parseIncrementTag } from '../../agent/src/snapshots/index.ts';
import { backupWorkflow } from '../../agent/src/workflows/backup/backup.ts';
import { skipPauses } from './pauses.ts';
import { type MadeBackup, makeBackup, makeState, perform } from './stories/perform.ts';
import { makeVm, type Vm } from './stories/vm.ts';
import { type Random, randomOf } from './undo-model.ts';
import { World } from './world.ts';

const HISTORIES = Number(process.env.VIRTKEEP_UNDO_HISTORIES ?? 1);
const FIRST_SEED = Number(process.env.VIRTKEEP_UNDO_SEED ?? 1);
const STEPS = 7;
const MAX_ARCHIVES = 3;
/** Specification 3.2: not counting the current one. */
const KEPT = 2;
const MAX_HISTORY_MS = 240_000;

skipPauses();

interface Growing extends MadeBackup {
  compressed: boolean;
  /** What the guest had written, by state. */
  views: string[][];
  /** Its last increment held its states. */
  isHeld: boolean;
}

class History {
  readonly #world: World;
  readonly #random: Random;
  readonly #vm: Vm;
  readonly #log: string[];
  readonly #archives: Growing[] = [];
  /** Of archives that were removed. */
  readonly #removed: string[] = [];
  #written = 0;

  constructor(world: World, vm: Vm, random: Random, log: string[]) {
    this.#world = world;
    this.#vm = vm;
    this.#random = random;
    this.#log = log;
  }

  async play(): Promise<void> {
    await this.#begin();
    for (let step = 0; step < STEPS; step += 1) {
      if (this.#archives.length < MAX_ARCHIVES && this.#random(3) === 0) await this.#begin();
      if (this.#archives.length > 1 && this.#random(4) === 0) this.#remove();
      if (step === 2 && this.#random(2)) await this.#mine();
      await this.#extend(this.#archives[this.#random(this.#archives.length)]!);
    }
    for (const { path, views } of this.#archives)
      for (const [index, view] of views.entries())
        expect([index + 1, await this.#world.archived(path, index + 1)]).toEqual([index + 1, view]);
  }

  async #write(): Promise<string[]> {
    this.#written += 1;
    await this.#vm.write(this.#random(20), this.#written);
    return this.#vm.view();
  }

  async #begin(): Promise<void> {
    const view = await this.#write();
    const compressed = this.#random(2) === 1;
    const options = { canBeIncremental: true, compress: compressed };
    const made = await makeBackup(this.#world, this.#vm.machine.uuid, options);
    this.#log.push(`${made.ref.filename} begun`);
    this.#archives.push({ ...made, compressed, views: [view], isHeld: false });
  }

  #remove(): void {
    const [removed] = this.#archives.splice(this.#random(this.#archives.length), 1);
    this.#log.push(`${removed!.ref.filename} removed`);
    rmSync(removed!.path);
    this.#removed.push(removed!.id);
  }

  /** It ends no archive's increments: it is made, and not deleted. */
  async #mine(): Promise<void> {
    this.#log.push('a state of the user');
    await makeState(this.#world, this.#vm.machine.uuid, 'mine');
  }

  async #extend(archive: Growing): Promise<void> {
    const view = await this.#write();
    const holdStates = this.#random(4) === 0;
    const compressed = this.#random(3) === 0 ? !archive.compressed : archive.compressed;
    this.#log.push(
      `${archive.ref.filename} extended${holdStates ? ', held' : ''}${compressed ? ', zstd' : ''}`,
    );
    const { uuid: domainId } = this.#vm.machine;
    const result = await perform(this.#world, operationId =>
      backupWorkflow(
        this.#world.dependencies,
        StartBackupRequest.fromPartial({
          ...{ operationId, domainId, fileId: newId(), extend: archive.ref, extendFileId: archive.id },
          ...{ holdStates, extendCompressed: compressed, removedArchives: this.#removed },
        }),
      ),
    );
    const { filename } = result.file as { filename: string };
    const path = join(this.#world.backups, filename);
    Object.assign(archive, { path, compressed, isHeld: holdStates, ref: { ...archive.ref, filename } });
    archive.views.push(view);
    expect(await this.#vm.view()).toEqual(view);
    expect(await this.#world.archived(archive.path)).toEqual(view);
    const numbers = this.#numbers();
    expect(this.#removed.filter(removed => numbers.has(removed))).toEqual([]);
    if (!holdStates) this.#expectFew(archive, numbers.get(archive.id));
  }

  /** Of the states on the VM, by archive. */
  #numbers(): Map<string, number[]> {
    const numbers = new Map<string, number[]>();
    for (const xml of this.#vm.machine.states.values()) {
      const tag = parseIncrementTag(parseSnapshot(xml).description ?? '');
      if (tag) numbers.set(tag.backupId, [...(numbers.get(tag.backupId) ?? []), tag.state]);
    }
    return numbers;
  }

  #expectFew({ views }: Growing, numbers: number[] | undefined): void {
    const current = views.length;
    const kept = Array.from(
      { length: Math.min(current, KEPT + 1) },
      (_, back) => current - back,
    ).toReversed();
    expect(numbers?.toSorted((a, b) => a - b)).toEqual(kept);
  }
}

test(
  `${HISTORIES} histories from seed ${FIRST_SEED} on`,
  async () => {
    for (let seed = FIRST_SEED; seed < FIRST_SEED + HISTORIES; seed += 1) {
      const [world, log, random] = [new World(), [] as string[], randomOf(seed)];
      try {
        const vm = await makeVm(world, { running: random(3) > 0, agent: true });
        await new History(world, vm, random, log).play();
      } catch (error) {
        (error as Error).message =
          `VIRTKEEP_UNDO_SEED=${seed}: ${(error as Error).message}\n${log.join('\n')}`;
        throw error;
      } finally {
        world.remove();
      }
    }
  },
  HISTORIES * MAX_HISTORY_MS,
);
