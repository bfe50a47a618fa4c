/** What a removal of the Debian package takes: its scripts, run below a directory with the program that is removed. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { Journal } from '../../../agent/src/operations/journal.ts';
import { programFile, ROOT } from '../../lab/paths.ts';

const STATE = 'var/lib/virtkeep-agent';
let root: string;

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'virtkeep-removal-'));
  for (const directory of ['bin', 'etc/virtkeep', STATE, 'var/lib/virtkeep-controller'])
    mkdirSync(join(root, directory), { recursive: true });
  const settings = join(root, 'etc/virtkeep/agent.yaml');
  writeFileSync(settings, `state_dir: ${join(root, STATE)}\n`);
  const program = `#!/bin/sh\nexec ${process.execPath} ${programFile('virtkeep-agent')} "$@"\n`;
  writeFileSync(join(root, 'bin/virtkeep-agent'), program, { mode: 0o755 });
});
afterEach(() => rmSync(root, { recursive: true }));

/** What remains of a script's machine is below the root. */
function run(name: 'prerm' | 'postrm', action: string): void {
  const script = readFileSync(join(ROOT, 'packaging/debian', name), 'utf8');
  const moved = script.replaceAll(/\/(?=(var\/lib|etc|run)\/)/g, `${root}/`);
  execFileSync('sh', ['-c', moved, name, action], {
    env: { ...process.env, NODE_OPTIONS: '', PATH: `${join(root, 'bin')}:/usr/bin:/bin` },
    stdio: ['ignore', 'ignore', 'pipe'],
  });
}

function purge(): void {
  run('prerm', 'remove');
  run('postrm', 'remove');
  rmSync(join(root, 'bin'), { recursive: true });
  run('postrm', 'purge');
}

const journal = () => new Journal(join(root, STATE, 'journal.db'));

/** As an agent leaves it whose time to stop was over before its undo was. @returns the operation's id */
function leaveBackup(): string {
  const id = newId();
  const left = journal();
  left.insertOperation({
    message: {
      id,
      kind: 'backup',
      state: OperationState.RUNNING,
      entities: [],
      created: new Date(),
      finished: undefined,
      progress: undefined,
      error: undefined,
      cancellable: true,
      warnings: [],
      resultJson: '',
      inventoryRevision: 0n,
      result: undefined,
      sequence: 1n,
    },
    fingerprint: 'f',
    locks: [],
    committed: false,
  });
  left.close();
  return id;
}

test('a purge takes the state of agent and controller when all is undone', () => {
  journal().close();
  purge();
  expect(
    ['virtkeep-agent', 'virtkeep-controller'].map(name => existsSync(join(root, 'var/lib', name))),
  ).toEqual([false, false]);
});

test('a purge keeps the journal that says what is left on VMs', () => {
  const id = leaveBackup();
  purge();
  const kept = journal();
  expect(kept.unsettled().map(({ message }) => message.id)).toEqual([id]);
  kept.close();
  expect(readFileSync(join(root, STATE, 'unsettled'), 'utf8')).toBe(`backup ${id}\n`);
  expect(existsSync(join(root, 'var/lib/virtkeep-controller'))).toBe(false);
});

test('a purge keeps a journal that an agent still has, or that cannot be read', () => {
  const running = journal();
  purge();
  running.close();
  expect(existsSync(join(root, STATE, 'journal.db'))).toBe(true);
});

test('what was left and is undone meanwhile keeps nothing', () => {
  const id = leaveBackup();
  run('prerm', 'remove');
  const settled = journal();
  const [record] = settled.unsettled();
  settled.updateOperation({
    ...record!,
    message: { ...record!.message, state: OperationState.SUCCEEDED, finished: new Date() },
  });
  settled.close();
  expect(readFileSync(join(root, STATE, 'unsettled'), 'utf8')).toContain(id);
  purge();
  expect(existsSync(join(root, STATE))).toBe(false);
});
