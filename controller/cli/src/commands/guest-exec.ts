/** `vm exec`: a program in a guest as if it ran here: its streams, its exit code. */
import { setTimeout as sleep } from 'node:timers/promises';
import { Backoff } from '@virtkeep/shared/backoff';
import type { Command } from 'commander';
import type { Client, Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { type GuestOf, guestCommand } from '../guest-command.ts';
import { seconds } from '../options.ts';
import { note, printJson } from '../output.ts';
import { resolve } from '../resolve.ts';

interface ExecOptions {
  timeout?: number;
  stdin: boolean;
}

/** What guest-exec and guest-exec-status answer. */
interface Reply {
  exited: boolean;
  pid?: number;
  exitcode?: number;
  signal?: number;
  'out-data'?: string;
  'err-data'?: string;
  'out-encoding'?: 'base64';
  'err-encoding'?: 'base64';
  'out-truncated'?: true;
  'err-truncated'?: true;
}

/** What the guest takes at once. */
const MAX_INPUT_BYTES = 90 * 1024;
/** A call that waits for the program's end; then it is asked about. */
const FIRST_WAIT_S = 20;
const FIRST_PAUSE_MS = 100;
const MAX_PAUSE_MS = 2_000;

/** As ssh and timeout(1) have it, since the program's own codes are any of 0–255. */
const NOT_RUN = 255;
const TIMED_OUT = 124;
const SIGNALLED = 128;

export function addExec(vms: Command): void {
  vms
    .command('exec <vm> <program> [args...]')
    .description('run a program in the guest: exec <vm> -- cmd args…')
    .option('--timeout <seconds>', 'stop waiting for its end; it is not ended in the guest', seconds)
    .option('--no-stdin', 'do not read stdin, also when it is no terminal')
    .action(
      async (...given: [vm: string, path: string, arg: string[], options: ExecOptions, command: Command]) => {
        const [vm, path, arg, options, command] = given;
        const { json } = command.optsWithGlobals<GlobalOptions>();
        try {
          process.exitCode = await withClient(client =>
            exec(client, vm, { path, arg }, { ...options, json }),
          );
        } catch (error) {
          note(`virtkeep: ${(error as Error).message}`);
          process.exitCode = NOT_RUN;
        }
      },
    );
}

async function exec(
  client: Client,
  vm: string,
  program: { path: string; arg: string[] },
  { timeout, stdin, json }: ExecOptions & { json: boolean | undefined },
): Promise<number> {
  const endMs = performance.now() + (timeout ?? Number.POSITIVE_INFINITY) * 1000;
  const input = stdin && !process.stdin.isTTY ? await readInput(endMs) : undefined;
  const domain = await resolve(client, 'domains', vm);
  const guest = { client, vmId: domain.id };
  const fargs: Json = { ...program, 'capture-output': true };
  if (input?.length) fargs['input-data'] = input.toString('base64');
  const waitS = Math.max(1, Math.min(FIRST_WAIT_S, Math.ceil((endMs - performance.now()) / 1000)));
  const first = await guestCommand<Reply>(guest, 'guest-exec', fargs, waitS);
  const reply = await untilExited(guest, first, endMs);
  if (json) printJson(reply);
  else if (reply.exited) tell(reply);
  if (reply.exited) return codeOf(reply);
  note(`virtkeep: not ended in time; it goes on in the guest as process ${first.pid}.`);
  return TIMED_OUT;
}

/** @returns the last reply: of the end, or with the time over */
async function untilExited(guest: GuestOf, first: Reply, endMs: number): Promise<Reply> {
  const { pid } = first;
  let reply = first;
  const backoff = Backoff.steady(FIRST_PAUSE_MS, MAX_PAUSE_MS);
  while (!reply.exited && performance.now() < endMs) {
    await sleep(Math.min(backoff.next(), endMs - performance.now()));
    reply = await guestCommand<Reply>(guest, 'guest-exec-status', { pid }).catch((error: Error) => {
      throw new CliError(`${error.message}\nThe program goes on in the guest as process ${pid}.`);
    });
  }
  return reply.exited ? reply : first;
}

/** All of stdin: a program in a guest gets it at its start. */
async function readInput(endMs: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let length = 0;
  const late = new CliError(
    'Stdin did not end in time, nothing was started. Use --no-stdin if it is not meant.',
  );
  const leftMs = endMs - performance.now();
  const timer = Number.isFinite(leftMs) ? setTimeout(() => process.stdin.destroy(late), leftMs) : undefined;
  try {
    for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
      chunks.push(chunk);
      length += chunk.length;
      if (length > MAX_INPUT_BYTES)
        throw new CliError(
          `A guest takes at most ${MAX_INPUT_BYTES} bytes on stdin. Copy a file with "vm cp" instead.`,
          ExitCode.usage,
        );
    }
  } finally {
    clearTimeout(timer);
  }
  return Buffer.concat(chunks);
}

function tell(reply: Reply): void {
  process.stdout.write(Buffer.from(reply['out-data'] ?? '', reply['out-encoding'] ?? 'utf8'));
  process.stderr.write(Buffer.from(reply['err-data'] ?? '', reply['err-encoding'] ?? 'utf8'));
  if (reply['out-truncated']) note('virtkeep: there was more on its stdout, which the guest did not keep.');
  if (reply['err-truncated']) note('virtkeep: there was more on its stderr, which the guest did not keep.');
}

/** Windows has codes of 32 bits, and codes of exceptions for signals: one that is a failure there stays one here. */
function codeOf({ exitcode = 0, signal }: Reply): number {
  if (signal !== undefined && signal > 0 && signal < SIGNALLED) return SIGNALLED + signal;
  const code = signal ?? exitcode;
  return code !== 0 && code % 256 === 0 ? 1 : code & 0xff;
}
