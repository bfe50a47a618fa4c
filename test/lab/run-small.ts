import childProcess, { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import type { Program, ProgramEnd } from './program.ts';

/** What goes to the small process, and what comes back. */
export interface Asked {
  id: number;
  program: Program;
}
export interface Told {
  id: number;
  end: ProgramEnd;
}

interface SmallProcess {
  child: ChildProcess;
  waiting: Map<number, PromiseWithResolvers<ProgramEnd>>;
  lastId: number;
}

/** Each test file has globals of its own; what Node itself provides is the same for all files of a worker. */
const SHARED = childProcess as unknown as { [KEY]?: SmallProcess };
const KEY = Symbol.for('virtkeep.test.small-process');
const PROGRAM = fileURLToPath(new URL('./small-process.ts', import.meta.url));

/**
 * Runs a program to its end as a child of a small process that this worker keeps. To start one copies the page tables of the
 * whole process that starts it, and a test worker has hundreds of megabytes: that was a tenth of all the work of the tests.
 * @throws Error when the small process is gone
 */
export function runSmall(program: Program): Promise<ProgramEnd> {
  const small = SHARED[KEY] ?? startSmall();
  const end = Promise.withResolvers<ProgramEnd>();
  const id = ++small.lastId;
  small.waiting.set(id, end);
  small.child.send({ id, program } satisfies Asked);
  return end.promise;
}

function startSmall(): SmallProcess {
  const child = fork(PROGRAM, {
    execArgv: ['--no-warnings'],
    serialization: 'advanced',
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  const small: SmallProcess = { child, waiting: new Map(), lastId: 0 };
  SHARED[KEY] = small;
  child.on('message', ({ id, end }: Told) => {
    small.waiting.get(id)?.resolve(end);
    small.waiting.delete(id);
  });
  child.on('exit', () => {
    delete SHARED[KEY];
    for (const { reject } of small.waiting.values())
      reject(new Error('the process that starts programs ended'));
  });
  // the worker ends when its tests have: neither keeps it
  child.unref();
  child.channel?.unref();
  return small;
}
