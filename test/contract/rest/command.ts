/** The `virtkeep` command, as a user runs it against a controller in this process. */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { programFile } from '../../lab/paths.ts';

const CLI = programFile('virtkeep');

export interface CommandResult {
  code: number;
  stdout: string;
  stderr: string;
}

interface CommandOptions {
  /** Its standard input. */
  input?: string | undefined;
  /** Called when it runs, for who sends it a signal. */
  started?: (child: ChildProcess) => void;
}

export async function virtkeep(
  { url, token }: { url: string; token: string },
  argv: readonly string[],
  { input = '', started }: CommandOptions = {},
): Promise<CommandResult> {
  const child = spawn(process.execPath, ['--no-warnings', CLI, ...argv], {
    env: { ...process.env, VIRTKEEP_URL: url, VIRTKEEP_TOKEN: token, NODE_OPTIONS: '' },
  });
  started?.(child);
  child.stdin.end(input);
  const ended = once(child, 'exit');
  const [stdout, stderr] = await Promise.all([text(child.stdout), text(child.stderr)]);
  const [code] = await ended;
  return { code: code as number, stdout, stderr };
}
