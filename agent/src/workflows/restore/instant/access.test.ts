import { chmodSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import type { Libvirt } from '@virtkeep/node-libvirt';
import type { WorkflowDependencies } from '../../dependencies.ts';
import type { Effect } from '../../effect.ts';
import { allowReading, mayWrite, qemuUser, restoreAccess } from './access.ts';

const host = (labels: string) => `<capabilities><host><secmodel><model>apparmor</model><doi>0</doi>
  <baselabel type='kvm'>confined</baselabel></secmodel><secmodel><model>dac</model><doi>0</doi>${labels}</secmodel></host></capabilities>`;

test('the user that VMs run as', () => {
  expect(qemuUser(host("<baselabel type='kvm'>+64055:+109</baselabel>"))).toEqual({ uid: 64055, gid: 109 });
  expect(qemuUser('<capabilities/>')).toBeNull();
  expect(qemuUser(host(''))).toBeNull();
});

test.each([
  ['its own file', { uid: 5, gid: 0, mode: 0o400 }, true],
  ["another's", { uid: 0, gid: 0, mode: 0o644 }, false],
  ['its group may read', { uid: 0, gid: 6, mode: 0o640 }, false],
  ['its group may write', { uid: 0, gid: 6, mode: 0o660 }, true],
  ['everybody may write', { uid: 0, gid: 0, mode: 0o602 }, true],
])('may it write? %s', (_name, file, expected) => {
  expect(mayWrite(file, { uid: 5, gid: 6 })).toBe(expected);
});

/** A node with what its operations have declared and not undone. */
class Node {
  readonly pending: Effect[] = [];
  readonly #dependencies: Pick<WorkflowDependencies, 'libvirt' | 'pendingEffects'>;

  constructor(uid: number, gid: number) {
    const capabilities = async () => host(`<baselabel type='kvm'>+${uid}:+${gid}</baselabel>`);
    this.#dependencies = {
      libvirt: () => ({ capabilities }) as Libvirt,
      pendingEffects: (() => [...this.pending]) as never,
    };
  }

  allow(path: string): Promise<void> {
    const begin = (effect: Effect) => this.pending.push(effect);
    return allowReading({ effects: { begin } } as never, this.#dependencies, path, 'a.tar');
  }

  /** Undoes one of them. */
  async undo(at = 0, isStruck = true): Promise<void> {
    const effect = this.pending[at] as Parameters<typeof restoreAccess>[0];
    const amend = (left: Effect) => this.pending.splice(this.pending.indexOf(effect), 1, left);
    await restoreAccess(effect, this.#dependencies, amend);
    if (isStruck) this.pending.splice(at, 1);
  }
}

test('an archive that only its owner may read is lent to the group of QEMU, and given back', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'vk-access-'));
  const path = join(directory, 'a.tar');
  writeFileSync(path, '', { mode: 0o600 });
  const { uid, gid } = statSync(path);
  const node = new Node(uid + 1, gid);
  await node.allow(path);
  expect(statSync(path).mode & 0o777).toBe(0o640);
  const access = { type: 'archive_access', path, gid, mode: 0o600 } as const;
  expect(node.pending).toEqual([access]);
  await node.undo();
  expect(statSync(path).mode & 0o777).toBe(0o600);
  chmodSync(path, 0o640);
  await node.allow(path);
  expect(node.pending).toEqual([]);
  chmodSync(path, 0o666);
  await expect(node.allow(path)).rejects.toMatchObject({ msgKey: 'instant_restore_unsupported' });
  rmSync(directory, { recursive: true });
  node.pending.push(access);
  await node.undo();
});

describe('of several restores that read one archive the last one gives it back', () => {
  let directory: string;
  let path: string;
  let node: Node;
  const mode = () => statSync(path).mode & 0o777;

  beforeEach(() => {
    directory = mkdtempSync(join(tmpdir(), 'vk-access-'));
    path = join(directory, 'a.tar');
    writeFileSync(path, '', { mode: 0o600 });
    const { uid, gid } = statSync(path);
    node = new Node(uid + 1, gid);
  });
  afterEach(() => rmSync(directory, { recursive: true }));

  test('one after the other', async () => {
    for (let count = 0; count < 3; count += 1) await node.allow(path);
    const modes: number[] = [];
    for (let count = 0; count < 3; count += 1) {
      await node.undo();
      modes.push(mode());
    }
    expect(modes).toEqual([0o640, 0o640, 0o600]);
  });

  test('both at once, struck from the journal only afterwards', async () => {
    for (let count = 0; count < 2; count += 1) await node.allow(path);
    await Promise.all([node.undo(0, false), node.undo(1, false)]);
    expect(mode()).toBe(0o600);
    // as after a crash
    await Promise.all([node.undo(0, false), node.undo(1, false)]);
    expect(mode()).toBe(0o600);
  });

  test('and one that begins while the other gives it back reads it', async () => {
    await node.allow(path);
    await Promise.all([node.undo(0, false), node.allow(path)]);
    expect(mode()).toBe(0o640);
    node.pending.shift();
    await node.undo();
    expect(mode()).toBe(0o600);
  });
});
