import { type ExecFileOptions, execFile } from 'node:child_process';

/** A program that is to be run to its end. */
export interface Program {
  argv: readonly string[];
  input: string | Buffer;
  options: ExecFileOptions;
}

/** How it ended. Of one that a signal ended, or that could not be started, `exitCode` is null and `message` says why. */
export interface ProgramEnd {
  failed: boolean;
  exitCode: number | null;
  stdout: string;
  stderr: string;
  message: string;
}

/** Runs a program to its end, without a shell, as a child of this process. */
export function runProgram({ argv, input, options }: Program): Promise<ProgramEnd> {
  const [file = '', ...args] = argv;
  return new Promise(resolve => {
    const child = execFile(file, args, { ...options, encoding: 'utf8' }, (error, stdout, stderr) => {
      const exitCode = typeof error?.code === 'number' ? error.code : null;
      resolve({ failed: error !== null, exitCode, stdout, stderr, message: error?.message ?? '' });
    });
    child.stdin?.on('error', () => {}); // a program may end without having read its input
    child.stdin?.end(input);
  });
}
