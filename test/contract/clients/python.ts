/** Python as the tests run it: Debian's, which has Debian's packages (`test/lab/setup.sh`). */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const PYTHON = '/usr/bin/python3';

/** Runs it, with modules of `path` besides. */
export function python(parameters: string[], path = ''): Promise<{ stdout: string }> {
  return promisify(execFile)(PYTHON, parameters, { env: { ...process.env, PYTHONPATH: path } });
}
