import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import { ConfigError } from './config.ts';
import { runDaemonCommand, StartAgain, UsageError } from './daemon-cli.ts';

let said: string;

beforeEach(() => {
  said = '';
  jest.spyOn(process, 'exit').mockImplementation(code => {
    throw Object.assign(new Error('the process has ended'), { code });
  });
  jest.spyOn(process.stderr, 'write').mockImplementation(text => {
    said += String(text);
    return true;
  });
});
afterEach(() => void jest.restoreAllMocks());

test.each([
  [1, new Error('why')],
  [64, new UsageError('why')],
  [75, new StartAgain('why')],
  [78, new ConfigError('why')],
])('ends with %d, and says why', async (code, error) => {
  await expect(runDaemonCommand('it', () => Promise.reject(error))).rejects.toMatchObject({ code });
  expect(said).toMatch(/^it: .*why/);
});
