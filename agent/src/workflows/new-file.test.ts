import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { nameOf } from '@virtkeep/shared/beneath';
import { createLogger } from '@virtkeep/shared/log';
import { convertImage, createImage } from '../disks/index.ts';
import { NO_OTHER_NODES } from '../other-nodes.ts';
import type { OperationContext } from './context.ts';
import type { WorkflowDependencies } from './dependencies.ts';
import type { Effect } from './effect.ts';
import { makeHeldFile, makeNewFile } from './new-file.ts';
import { undoEffects } from './undo/recover.ts';

let directory: string;

let told: string[];
beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'new-file-'));
  told = [];
});
afterEach(() => rmSync(directory, { recursive: true, force: true }));

const at = (name: string) => join(directory, name);

/** An operation with a journal of its own. */
class Run {
  /** Declarations after this many fail, as when the agent is killed. */
  killedAfter = Number.POSITIVE_INFINITY;
  readonly journal: { effect: Effect; struck: boolean }[] = [];
  domains: () => Promise<unknown[]> = async () => [];
  /** What libvirt answers about any domain. */
  domain: unknown;
  readonly context = {
    effects: {
      begin: (effect: Effect) => {
        if (this.journal.length >= this.killedAfter) throw new Error('killed');
        const record = { effect, struck: false };
        this.journal.push(record);
        const keep = () => {
          record.struck = true;
        };
        return { keep, undo: async () => {} };
      },
    },
  } as unknown as OperationContext;

  make(name: string): Promise<unknown> {
    return makeNewFile(this.context, at(name), true);
  }

  async undo(
    effects = this.journal.filter(({ struck }) => !struck).map(({ effect }) => effect),
  ): Promise<void> {
    const libvirt = { domains: this.domains, domain: () => this.domain };
    const dependencies = {
      libvirt: () => libvirt,
      pools: async () => [],
      otherNodes: NO_OTHER_NODES,
      log: createLogger('test', 'error'),
      swtpmDirectory: at('swtpm'),
      nvramDirectory: at('nvram'),
    } as unknown as WorkflowDependencies;
    const undo = undoEffects(dependencies);
    for (const effect of effects.toReversed())
      await undo(
        effect,
        AbortSignal.timeout(240_000),
        text => told.push(text),
        () => {},
      );
  }
}

test('the one that loses the race for a name leaves the file of the one that won', async () => {
  const [first, second] = [new Run(), new Run()];
  const tried = await Promise.allSettled([first.make('disk.qcow2'), second.make('disk.qcow2')]);
  const loser = tried[0].status === 'rejected' ? first : second;
  writeFileSync(at('disk.qcow2'), 'of the winner');
  await loser.undo();
  expect(readFileSync(at('disk.qcow2'), 'utf8')).toBe('of the winner');
});

test('a directory that an operation made stays with what another one has put there', async () => {
  const [first, second] = [new Run(), new Run()];
  await first.make('new/vm/a.qcow2');
  writeFileSync(at('new/vm/a.qcow2'), 'first');
  await second.make('new/vm/b.qcow2');
  writeFileSync(at('new/vm/b.qcow2'), 'second');
  await first.undo();
  expect(readdirSync(at('new/vm'))).toEqual(['b.qcow2']);
  await second.undo();
  expect(existsSync(at('new/vm/b.qcow2'))).toBe(false);
});

test('a crash at any moment of making a file leaves nothing of it, and nothing of another is taken', async () => {
  for (const killedAfter of [0, 1, 2, 3]) {
    for (const alsoStruck of [true, false]) {
      const run = new Run();
      run.killedAfter = killedAfter;
      await run.make('sub/a.qcow2').catch(() => {});
      await run.undo(run.journal.filter(({ struck }) => alsoStruck || !struck).map(({ effect }) => effect));
      expect(readdirSync(directory)).toEqual([]);
    }
  }
});

test('of a layer it is recorded on which files it may stand', async () => {
  const run = new Run();
  await makeNewFile(run.context, at('a.qcow2'), true, { stack: 'vda' });
  await run.make('b.qcow2');
  const made = run.journal.filter(({ struck }) => !struck).map(({ effect }) => effect);
  expect(made).toMatchObject([{ path: at('a.qcow2'), stack: 'vda' }, { path: at('b.qcow2') }]);
  expect(made[1]).not.toHaveProperty('stack');
});

test('a claim that was left is taken away, and the file of the one that won stays', async () => {
  const [winner, loser] = [new Run(), new Run()];
  await winner.make('a.qcow2');
  const claim = at('.virtkeep-x.claim');
  writeFileSync(claim, '');
  await loser.undo([{ type: 'file', path: at('a.qcow2'), claim }]);
  expect(readdirSync(directory)).toEqual(['a.qcow2']);
});

test('a file that took the place of the one made stays', async () => {
  const run = new Run();
  await run.make('a.qcow2');
  writeFileSync(at('b'), 'of somebody else');
  renameSync(at('b'), at('a.qcow2'));
  await run.undo();
  expect(readFileSync(at('a.qcow2'), 'utf8')).toBe('of somebody else');
});

test('one that is held is written itself, whatever was put in its place meanwhile', async () => {
  writeFileSync(at('victim'), 'as it was');
  const { file } = await makeHeldFile(new Run().context, at('spare'), false);
  renameSync(at('spare'), at('away'));
  symlinkSync(at('victim'), at('spare'));
  const signal = AbortSignal.timeout(240_000);
  await createImage(nameOf(file), { format: 'qcow2', virtualSize: 1 << 20, signal });
  await file.close();
  expect(readFileSync(at('victim'), 'utf8')).toBe('as it was');
  expect(readFileSync(at('away')).toString('latin1', 0, 3)).toBe('QFI');
});

test('what qemu-img makes in its place is the same file', async () => {
  const run = new Run();
  await run.make('a.qcow2');
  const signal = AbortSignal.timeout(240_000);
  await createImage(at('a.qcow2'), { format: 'qcow2', virtualSize: 1 << 20, signal });
  await run.make('b.qcow2');
  await convertImage(at('a.qcow2'), at('b.qcow2'), { sourceFormat: 'qcow2', targetFormat: 'qcow2', signal });
  await run.undo();
  expect(readdirSync(directory)).toEqual([]);
});

test('a file or directory of a journal of before is taken back as far as nobody else has it', async () => {
  mkdirSync(at('new/vm'), { recursive: true });
  for (const name of ['new/vm/a.qcow2', 'new/vm/b.qcow2']) writeFileSync(at(name), '');
  const run = new Run();
  const file: Effect = { type: 'file', path: at('new/vm/a.qcow2') };
  await run.undo([{ type: 'directory', path: at('new') }, file]);
  expect(readdirSync(at('new/vm'))).toEqual(['b.qcow2']);
  await run.undo([
    { type: 'directory', path: at('new') },
    { type: 'file', path: at('new/vm/b.qcow2') },
  ]);
  expect(existsSync(at('new'))).toBe(false);
});

test('the tail of an archive and a copy of UEFI variables need no libvirt', async () => {
  for (const name of ['backups/a.tail', 'nvram/copy.fd']) {
    mkdirSync(dirname(at(name)));
    writeFileSync(at(name), '');
    const run = new Run();
    run.domains = () => Promise.reject(new Error('libvirt is away'));
    await run.undo([{ type: 'file', path: at(name) }]);
    expect(existsSync(at(name))).toBe(false);
  }
});

test('a copy of UEFI variables that was cut off while it was written goes with its effect', async () => {
  mkdirSync(at('nvram'));
  writeFileSync(at('nvram/copy.fd.new'), 'a part');
  await new Run().undo([{ type: 'file', path: at('nvram/copy.fd') }]);
  expect(readdirSync(at('nvram'))).toEqual([]);
});

test('a domain that has none of the disks made for it is somebody else’s', async () => {
  const run = new Run();
  const calls: string[] = [];
  const xml = `<domain type='qemu'><name>web</name><memory>1</memory><os><type>hvm</type></os><devices><disk type='file' device='disk'><source file='/pool/theirs.qcow2'/><target dev='vda'/></disk></devices></domain>`;
  run.domain = {
    xml: async () => xml,
    isActive: async () => false,
    undefine: async () => void calls.push('undefine'),
  };
  await run.undo([{ type: 'domain', domainId: 'x', files: ['/pool/ours.qcow2'] }]);
  expect([calls, told]).toEqual([[], [expect.stringContaining('The domain web was left')]]);
  await run.undo([{ type: 'domain', domainId: 'x', files: ['/pool/theirs.qcow2'] }]);
  await run.undo([{ type: 'domain', domainId: 'x' }]);
  expect(calls).toEqual(['undefine', 'undefine']);
});
