import { expect, test } from '@jest/globals';
import { withoutSecretArguments } from './secret-arguments.ts';

test.each<[string[], string[]]>([
  [
    ['--bearer', 'hunter2', '--bearer=hunter2'],
    ['--bearer', '[redacted]', '--bearer=[redacted]'],
  ],
  [
    ['--password=hunter2', 'x'],
    ['--password=[redacted]', 'x'],
  ],
  [
    ['login', '--password', 'hunter2', '--user', 'me'],
    ['login', '--password', '[redacted]', '--user', 'me'],
  ],
  [
    ['/Password', 'hunter2'],
    ['/Password', '[redacted]'],
  ],
  [
    ['-c', 'PGPASSWORD=hunter2 psql -h db; ls'],
    ['-c', 'PGPASSWORD=[redacted] psql -h db; ls'],
  ],
  [
    ['-c', 'export API_KEY="a b"; run'],
    ['-c', 'export API_KEY=[redacted]; run'],
  ],
  [
    ['-H', 'Authorization: Bearer abc.def'],
    ['-H', 'Authorization: [redacted]'],
  ],
  [['{"token": "abc", "name": "x"}'], ['{"token": [redacted], "name": "x"}']],
  [['ftp://me:hunter2@host/x'], ['ftp://me:[redacted]@host/x']],
])('%j is kept as %j', (args, kept) => {
  expect(withoutSecretArguments(args)).toEqual(kept);
});

test.each([
  [['-l', '/etc/passwd', '--all']],
  [['-c', 'df -h; id', 'http://host:80/x@y']],
  [['passwd', 'root']],
  [[]],
])('%j is kept whole', args => {
  expect(withoutSecretArguments(args)).toEqual(args);
});

test('anything may have been sent, of any length', () => {
  expect(withoutSecretArguments('x')).toBe('x');
  expect(withoutSecretArguments([1, null, { a: 1 }])).toEqual([1, null, { a: 1 }]);
  for (const text of [
    'a-'.repeat(500_000),
    'token'.repeat(200_000),
    'pass="'.repeat(1_000),
    '://a:'.repeat(200_000),
  ])
    expect(withoutSecretArguments([text])).toHaveLength(1);
});
