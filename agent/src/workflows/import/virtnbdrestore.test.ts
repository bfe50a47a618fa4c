import { expect, test } from '@jest/globals';
import { requireVirtnbdrestore, restoreCommand } from './virtnbdrestore.ts';

test('a node without the tool is told by name, with its package', async () => {
  await expect(requireVirtnbdrestore('/nowhere:/proc')).rejects.toMatchObject({
    msgKey: 'tool_missing',
    params: { program: 'virtnbdrestore', package: 'virtnbdbackup' },
  });
});

test('it is given our directory, the order of files and no libvirt, and is bounded', () => {
  const argv = restoreCommand('/proc/1/fd/5', 'vda', {
    names: ['vda.0.full.data', 'vda.1.inc.data'],
    sizeBytes: 2 ** 30,
  });
  expect(argv.slice(0, 3)).toEqual(['env', '-i', '--chdir=/proc/1/fd/5']);
  expect(argv).toEqual(
    expect.arrayContaining([
      '--input=.',
      '--output=out',
      '--uri=test:///default',
      '--as=2147483648',
      '--core=0',
    ]),
  );
  expect(argv).toContain('--sequence=vda.0.full.data,vda.1.inc.data');
  expect(argv).toContain(`--fsize=${2 ** 30 + 2 ** 26 + 64 * 2 ** 20}`);
  expect(argv).toContain('--socketfile=/proc/self/cwd/vda');
});
