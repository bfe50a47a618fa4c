import { constants } from 'node:os';
import { expect, jest, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';

/** A file of 8 MiB: data, a hole from 1 to 2 MiB, data up to 5 MiB, a hole. */
const EDGES = [MiB, 2 * MiB, 5 * MiB];
const SIZE = 8 * MiB;
const [SEEK_END, SEEK_DATA, SEEK_HOLE] = [2, 3, 4];

let calls = 0;
let errno = 0;
/** Offsets at which the server does not tell where the next data is. */
let silentAt: (offset: number) => boolean = () => false;

function fail(number: number): number {
  errno = number;
  return -1;
}

function lseek(_fd: number, offset: number, whence: number): number {
  calls += 1;
  if (whence === SEEK_END) return SIZE;
  if (offset >= SIZE) return fail(constants.errno.ENXIO);
  const passed = EDGES.filter(edge => edge <= offset).length;
  const isHole = passed % 2 === 1;
  if (whence === SEEK_HOLE) return isHole ? offset : (EDGES[passed] ?? SIZE);
  if (whence !== SEEK_DATA) throw new Error('it is not asked so');
  if (silentAt(offset)) return fail(constants.errno.EIO);
  return isHole ? (EDGES[passed] ?? fail(constants.errno.ENXIO)) : offset;
}
/** As koffi: errno is lost there. */
lseek.async = (
  fd: number,
  offset: number,
  whence: number,
  done: (error: unknown, found: number) => void,
): void => {
  const found = lseek(fd, offset, whence);
  errno = 0;
  done(null, found);
};

jest.unstable_mockModule('koffi', () => ({
  default: {
    load: () => ({ func: (declared: string) => (/\blseek\(/.test(declared) ? lseek : () => -1) }),
    errno: () => errno,
    os: { errno: constants.errno },
  },
}));
const { HoleFinder } = await import('./block-source.ts');

async function rangesOf(aside: boolean): Promise<{ start: number; end: number }[][]> {
  const finder = new HoleFinder({ fd: 3, offset: 0, lengthBytes: SIZE });
  const found = [];
  for (const index of [0, 1]) found.push(aside ? await finder.rangesAside(index) : finder.ranges(index));
  return found;
}

test.each([true, false])('holes are told from data (on the main thread: %p)', async aside => {
  silentAt = () => false;
  const [first, second] = await rangesOf(aside);
  expect(first).toEqual([
    { start: 0, end: MiB },
    { start: 2 * MiB, end: 4 * MiB },
  ]);
  // behind the last data the main thread cannot tell "no more data" from a failure: zeros are read
  expect(second).toEqual([{ start: 0, end: aside ? 4 * MiB : MiB }]);
});

test.each([true, false])(
  'a failed search for data in a hole leaves out nothing behind it (on the main thread: %p)',
  async aside => {
    silentAt = offset => offset === MiB;
    calls = 0;
    const [first] = await rangesOf(aside);
    expect(first).toEqual([{ start: 0, end: 4 * MiB }]);
    expect(calls).toBeLessThan(20);
  },
);
