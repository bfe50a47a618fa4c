import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { Writable } from 'node:stream';
import { CliError, ExitCode } from './exit-codes.ts';
import { note } from './output.ts';

/** Before a password is asked for that is to be sent to this controller. */
export function warnOfPlainHttp(url: string): void {
  if (/^http:/i.test(url))
    note(
      `Warning: ${url} is plain HTTP: the password is sent in plain, and whoever is on the way can read it.`,
    );
}

/** A password: asked for without an echo, or the whole of stdin in a pipe. It is never an argument. */
export function askPassword(question = 'Password: '): Promise<string> {
  if (!process.stdin.isTTY) return Promise.resolve(readFileSync(0, 'utf8').replace(/\r?\n$/, ''));
  return ask(question, true);
}

/**
 * One's present password and a new one: each asked for, or the two lines of stdin in a pipe.
 * @throws CliError usage, when there is one line
 */
export async function askPasswordChange(): Promise<{ present: string; wanted: string }> {
  const questions = ['Your present password: ', 'Your new password: '] as const;
  if (process.stdin.isTTY)
    return { present: await ask(questions[0], true), wanted: await ask(questions[1], true) };
  const [present = '', wanted] = (await askPassword()).split(/\r?\n/);
  if (wanted === undefined)
    throw new CliError(
      'Give your present password and the new one, each on a line of stdin.',
      ExitCode.usage,
    );
  return { present, wanted };
}

/** @throws CliError usage, without a terminal */
export function ask(question: string, hidden = false): Promise<string> {
  if (!process.stdin.isTTY)
    throw new CliError(`${question.trim()} is missing and there is no terminal to ask on.`, ExitCode.usage);
  process.stderr.write(question);
  const silent = new Writable({ write: (_chunk, _encoding, done) => done() });
  const lines = createInterface({
    input: process.stdin,
    output: hidden ? silent : process.stderr,
    terminal: true,
  });
  return new Promise(resolve => {
    lines.question('', answer => {
      lines.close();
      if (hidden) process.stderr.write('\n');
      resolve(answer);
    });
  });
}
