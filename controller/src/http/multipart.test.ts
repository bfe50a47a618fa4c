import { describe, expect, test } from '@jest/globals';
import { boundaryOf, fileOf } from './multipart.ts';

const CRLF = '\r\n';
const part = (head: string, content: string) => `--b${CRLF}${head}${CRLF}${CRLF}${content}${CRLF}`;
const FIELD = part('Content-Disposition: form-data; name="note"', 'filename=x');
const file = (content: string) =>
  part(
    `Content-Disposition: form-data; name="file"; filename="x.iso"${CRLF}Content-Type: application/octet-stream`,
    content,
  );
const END = `--b--${CRLF}`;

async function read(form: string, pieceBytes: number): Promise<string> {
  async function* pieces() {
    const bytes = Buffer.from(form, 'latin1');
    for (let at = 0; at < bytes.length; at += pieceBytes) yield bytes.subarray(at, at + pieceBytes);
  }
  const found: Buffer[] = [];
  for await (const bytes of fileOf(pieces(), 'b')) found.push(Buffer.from(bytes));
  return Buffer.concat(found).toString('latin1');
}

describe('the file of a form', () => {
  const contents = [
    '',
    'plain',
    `${CRLF}--a not the end${CRLF}--`,
    `\r\r\n--\r\n-${CRLF}`,
    '\0'.repeat(5000),
  ];
  test.each([1, 2, 3, 7, 64, 100_000])('is what was sent, in pieces of %i bytes', async pieceBytes => {
    for (const content of contents)
      for (const form of [
        file(content) + END,
        FIELD + file(content) + FIELD + END,
        `so${CRLF}${file(content)}${END}`,
      ])
        expect(await read(form, pieceBytes)).toBe(content);
  });

  const named = (name: string, content: string) =>
    part(`Content-Disposition: form-data; name="file"; filename=${name}`, content);

  test.each([1, 7, 100_000])(
    'is not a field that was left empty, in pieces of %i bytes',
    async pieceBytes => {
      expect(await read(named('""', '') + file('real') + named('""', '') + END, pieceBytes)).toBe('real');
      expect(await read(named('', '') + file('real') + END, pieceBytes)).toBe('real');
      expect(await read(named('""', 'by no name') + END, pieceBytes)).toBe('by no name');
      expect(await read(`${file('real')}--b--`, pieceBytes)).toBe('real');
    },
  );

  test('is not a field whose name looks like a file', async () => {
    const field = part('Content-Disposition: form-data; name="x; filename=y"', 'text');
    const escaped = part('Content-Disposition: form-data; name="\\"; filename=\\"y"', 'text');
    expect(await read(field + escaped + file('real') + END, 1000)).toBe('real');
  });

  test.each([
    ['has two files', file('one') + FIELD + file('two') + END],
    ['has a second one without bytes', file('one') + file('') + END],
    ['has a file in a field that was left empty', named('""', '') + END],
    ['ends before it says so', `${file('one')}--b`],
    ['ends in its file', FIELD + file('much').slice(0, -4)],
    ['has no file', FIELD + END],
    ['has no part', END],
    ['is none', 'plain'],
    ['has a head without end', `--b${CRLF}${'x'.repeat(20_000)}`],
  ])('is refused when the form %s', async (_what, form) => {
    await expect(read(form, 1000)).rejects.toMatchObject({ msgKey: 'bad_request' });
  });
});

test('a boundary stands in the content type, with or without quotes', () => {
  expect(boundaryOf('application/octet-stream')).toBeUndefined();
  expect(boundaryOf('multipart/form-data; boundary=abc')).toBe('abc');
  expect(boundaryOf('Multipart/Form-Data; charset=x; Boundary="a b"')).toBe('a b');
  expect(boundaryOf('multipart/form-data; a="; boundary=b"; boundary=c')).toBe('c');
  expect(boundaryOf('multipart/form-data; boundary="abc')).toBe('abc');
  expect(() => boundaryOf('multipart/form-data')).toThrow('boundary');
});
