import {
  copyFileSync, mkdirSync, mkdtempSync, realpathSync, rmSync, statSync, symlinkSync, unlinkSync, utimesSync,
  writeFileSync,
} from 'node:fs'; // biome-ignore format: a list
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { uuidV5 } from '@virtkeep/shared/ids';
import {
  type ArchiveSummary,
  BackupFiles,
  fsFacts,
  isMountPoint,
  MARKER,
  mountPointOf,
  probeMount,
  requireSpace,
  resolveInPool,
} from './index.ts';

const signal = new AbortController().signal;
const POOL_ID = '22222222-2222-4333-8444-555555555555';
const BACKUP_ID = '33333333-2222-4333-8444-555555555555';
let dir = '';
beforeEach(() => {
  dir = realpathSync(mkdtempSync(join(tmpdir(), 'virtkeep-pools-')));
});
afterEach(() => rmSync(dir, { recursive: true, force: true }));

describe('resolveInPool', () => {
  const outside = expect.objectContaining({ msgKey: 'path_outside_pool' });

  test('resolves what is inside, existing or not', async () => {
    const pool = { name: 'p', path: dir };
    mkdirSync(join(dir, 'a'));
    symlinkSync(join(dir, 'a'), join(dir, 'link'));
    expect(await resolveInPool(pool, 'a/b/c.tar')).toBe(join(dir, 'a/b/c.tar'));
    expect(await resolveInPool(pool, 'link/x')).toBe(join(dir, 'a/x'));
    expect(await resolveInPool(pool, './a/../y')).toBe(join(dir, 'y'));
  });

  test.each(['../x', '/etc/passwd', 'a/../../x', '..', '.', '', 'a\0b', 'out/x', 'out', 'dangling'])(
    'refuses %j',
    async path => {
      symlinkSync('/etc', join(dir, 'out'));
      symlinkSync('/nowhere/at/all', join(dir, 'dangling'));
      await expect(resolveInPool({ name: 'p', path: dir }, path)).rejects.toEqual(outside);
    },
  );
});

describe('mounts and space', () => {
  test('a local directory is mounted, a missing one is not', async () => {
    const probe = { id: POOL_ID, path: dir, type: 'dir', hadMarker: false, mayMark: true };
    // Debian 13 has a file system of its own for what is temporary
    const marker = statSync(dir).dev !== statSync('/').dev;
    expect(await probeMount(probe)).toMatchObject({ mounted: true, marker, readonly: false });
    expect(await probeMount({ ...probe, path: join(dir, 'no') })).toMatchObject({ mounted: false });
  });

  test('a pool that once had a marker is mounted only with it', async () => {
    const probe = { id: POOL_ID, path: dir, type: 'dir', hadMarker: true, mayMark: true };
    expect(await probeMount(probe)).toMatchObject({ mounted: false, marker: false });
    writeFileSync(join(dir, MARKER), '');
    expect(await probeMount(probe)).toMatchObject({ mounted: true, marker: true });
  });

  test('what libvirt mounts must be a mount point', async () => {
    const probe = { id: POOL_ID, path: dir, type: 'netfs', hadMarker: false, mayMark: true };
    expect(await probeMount(probe)).toMatchObject({ mounted: false });
    expect(await isMountPoint('/proc')).toBe(true);
    expect(await isMountPoint(dir)).toBe(false);
  });

  test('the file system of a place is the one that a link leads to, also where nothing is there', async () => {
    const link = (name: string, target: string) => {
      symlinkSync(target, join(dir, name));
      return join(dir, name);
    };
    const first = link('first', '/proc');
    expect(await mountPointOf(link('far', join(basename(first), 'sys', 'none')))).toBe('/proc');
    expect(await mountPointOf(join(first, 'none', 'below'))).toBe('/proc');
    expect(await mountPointOf(`${first}/../proc/./self`)).toBe('/proc');
    expect(await isMountPoint(first)).toBe(true);
    const endless = link('endless', 'endless');
    expect(await mountPointOf(endless)).toBe(await mountPointOf(dir));
    // an own file system that is away: what is there instead belongs to the one above
    const probe = { id: POOL_ID, path: link('pool', join(dir, 'target')), type: 'dir', hadMarker: false };
    mkdirSync(join(dir, 'target'));
    const was = { ...probe, formerMountPoint: join(dir, 'target'), mayMark: true };
    expect(await probeMount(was)).toMatchObject({ mounted: false });
  });

  test('free space is asked at use', async () => {
    const { available, capacity } = await fsFacts(dir);
    expect(available).toBeLessThanOrEqual(capacity);
    await requireSpace({ name: 'p', path: dir }, 1);
    await expect(requireSpace({ name: 'p', path: dir }, 1e18)).rejects.toEqual(
      expect.objectContaining({ msgKey: 'pool_no_space' }),
    );
  });
});

describe('BackupFiles', () => {
  const summary: ArchiveSummary = {
    backupId: BACKUP_ID, domainId: 'd', domainName: 'vm', created: new Date(1e12), hashed: true, states: [],
    canBeIncremental: false, requiredStates: [], fallbackReason: '', templateId: '', isTemplate: false, manifestJson: '{}', grown: '',
  }; // biome-ignore format: one record
  const read = jest.fn(async (path: string) => {
    if (basename(path).startsWith('bad'))
      throw new VirtkeepError('archive_damaged', { path, reason: 'no end' });
    return summary;
  });
  const place = () => ({ id: POOL_ID, path: dir });
  const at = (name: string) => join(dir, 'backups', name);
  beforeEach(() => {
    read.mockClear();
    mkdirSync(join(dir, 'backups/appliance/deep/too/far'), { recursive: true });
  });

  test('what is kept of a definition does not keep all of it', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const [count, padding] = [40, `<description>${'x'.repeat(1_000_000)}</description>`];
    for (let number = 0; number < count; number += 1)
      writeFileSync(
        at(`vm${number}.xml`),
        `<domain><name>of-a-long-name-${number}</name><uuid>${POOL_ID}</uuid>${padding}</domain>`,
      );
    const files = new BackupFiles(async () => ({}));
    collect();
    const before = process.memoryUsage().heapUsed;
    await files.refresh(place(), { signal });
    collect();
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(count * 100_000);
    expect(files.files(POOL_ID)).toHaveLength(count);
  });

  test('a directory of virtnbdbackup is one file, of the size of all of it, and read when one of them changes', async () => {
    mkdirSync(at('web/checkpoints'), { recursive: true });
    const [main, second] = ['web/vmconfig.virtnbdbackup.0.xml', 'web/vmconfig.virtnbdbackup.1.xml'];
    const names = [main, second, 'web/checkpoints/virtnbdbackup.0.xml', 'web/vda.full.data', 'web/web.cpt'];
    for (const name of names) writeFileSync(at(name), 'text');
    const backupFiles = new BackupFiles(read);
    await backupFiles.refresh(place(), { signal });
    const listed = () => backupFiles.files(POOL_ID).filter(({ filename }) => filename.startsWith('web/'));
    expect(listed()).toMatchObject([{ filename: main, type: 'virtnbdbackup', size: 12n, path: at(main) }]);
    expect(await backupFiles.refresh(place(), { signal })).toBe(false);
    writeFileSync(at('web/vda.inc.virtnbdbackup.1.data'), 'more');
    expect(await backupFiles.refresh(place(), { signal })).toBe(true);
    expect(listed()).toMatchObject([{ size: 16n }]);
    // written after what it describes, and no part of the size
    writeFileSync(at('web/vda.1700000000.qcow.json'), 'more');
    expect(await backupFiles.refresh(place(), { signal })).toBe(true);
    expect(listed()).toMatchObject([{ size: 16n }]);
    rmSync(at('web'), { recursive: true });
  });

  test('lists every kind, reads each once, and sees changes', async () => {
    for (const name of [
      'a.tar',
      'bad.tar.zst',
      'b.OVA',
      'appliance/b.ovf',
      'c.vma',
      'd.VMA.zst',
      'e.vma.lzo',
      'f.vma.gz',
      'g.vma.xz',
      'note.txt',
      '.x.tar.partial',
      '.h.tar',
      'appliance/deep/too/far/x.tar',
    ]) {
      writeFileSync(at(name), 'x');
    }
    writeFileSync(at('vm.xml'), `<domain><name>n</name><uuid>${POOL_ID}</uuid></domain>`);
    writeFileSync(at('broken.xml'), '<domain>');
    symlinkSync(at('a.tar'), at('link.tar'));
    const backupFiles = new BackupFiles(read);
    expect(await backupFiles.refresh(place(), { signal })).toBe(true);
    const files = backupFiles.files(POOL_ID);
    expect(files.map(file => [file.filename, file.type, file.compressed, file.damage !== ''])).toEqual([
      ['a.tar', 'tar', false, false],
      ['appliance/b.ovf', 'OVF', false, false],
      ['b.OVA', 'OVA', false, false],
      ['bad.tar.zst', 'tar', true, true],
      ['broken.xml', 'xml', false, true],
      ['c.vma', 'vma', false, false],
      ['d.VMA.zst', 'vma', true, false],
      ['e.vma.lzo', 'vma', true, false],
      ['f.vma.gz', 'vma', true, false],
      ['vm.xml', 'xml', false, false],
    ]);
    expect(files[0]).toMatchObject({
      id: BACKUP_ID,
      domainName: 'vm',
      hashed: true,
      size: 1n,
      path: at('a.tar'),
    });
    expect(files[3]?.id).toBe(uuidV5(POOL_ID, 'bad.tar.zst'));
    expect(files.at(-1)).toMatchObject({ domainId: POOL_ID, domainName: 'n' });
    expect(await backupFiles.refresh(place(), { signal })).toBe(false);
    expect(read).toHaveBeenCalledTimes(8);
    utimesSync(at('a.tar'), 1, 1);
    expect(await backupFiles.refresh(place(), { signal })).toBe(true);
    expect(read).toHaveBeenCalledTimes(9);
    await backupFiles.refresh(place(), { signal, fresh: true });
    expect(read).toHaveBeenCalledTimes(17);
    unlinkSync(at('a.tar'));
    expect(await backupFiles.refresh(place(), { signal })).toBe(true);
    expect(backupFiles.count(POOL_ID)).toBe(9);
    expect(backupFiles.hasLookedAt(POOL_ID)).toBe(true);
    const look = backupFiles.refresh(place(), { signal, fresh: true });
    // its mount goes while it is looked at
    backupFiles.lostSight(POOL_ID);
    await look;
    expect(backupFiles.hasLookedAt(POOL_ID)).toBe(false);
    await backupFiles.refresh(place(), { signal });
    expect(backupFiles.hasLookedAt(POOL_ID)).toBe(true);
    backupFiles.keepOnly(new Set([POOL_ID]));
    expect(backupFiles.files()).toHaveLength(9);
    backupFiles.keepOnly(new Set());
    expect(backupFiles.files()).toEqual([]);
    expect(backupFiles.count(POOL_ID)).toBe(0);
  });

  test('knows how many files a pool has without looking at each, also when they come to be those of another pool', async () => {
    for (const name of ['a.tar', 'b.tar', 'c.tar']) writeFileSync(at(name), 'x');
    const backupFiles = new BackupFiles(read);
    await backupFiles.refresh(place(), { signal });
    writeFileSync(at('a.tar'), 'longer');
    unlinkSync(at('b.tar'));
    await backupFiles.refresh(place(), { signal });
    const other = { ...place(), id: BACKUP_ID };
    const counts = () => [POOL_ID, BACKUP_ID].map(id => backupFiles.count(id));
    const looks = jest.spyOn(Map.prototype, 'values');
    const before = counts();
    expect(looks).not.toHaveBeenCalled();
    looks.mockRestore();
    await backupFiles.refresh(other, { signal });
    expect([before, counts()]).toEqual([
      [2, 0],
      [0, 2],
    ]);
  });

  test('lists disk images in any case, but those that a descriptor names: as long as it does', async () => {
    const image = { format: 'qcow2', virtualSize: 1n, allocatedSize: 1n };
    const names = ['A.QCOW2', 'b.vmdk', 'c.Vhdx', 'd.vhd', 'e.vdi', 'f.img', 'g.raw'];
    for (const name of [
      ...names,
      'h.qcow',
      'appliance/own.vmdk',
      'appliance/deep/below.vmdk',
      'appliance/x.vmdk',
    ])
      writeFileSync(at(name), 'x');
    writeFileSync(at('appliance/vm.ovf'), 'x');
    const parts = ['own.vmdk', 'deep/below.vmdk', '../b.vmdk', 'gone.vmdk'];
    const readOne = async (path: string) => (path.endsWith('.ovf') ? { domainName: 'vm', parts } : { image });
    const backupFiles = new BackupFiles(readOne);
    const listed = async () => {
      await backupFiles.refresh(place(), { signal });
      return backupFiles.files(POOL_ID).map(({ filename }) => filename);
    };
    const alone = [
      'A.QCOW2',
      'appliance/vm.ovf',
      'appliance/x.vmdk',
      'c.Vhdx',
      'd.vhd',
      'e.vdi',
      'f.img',
      'g.raw',
    ];
    expect(await listed()).toEqual(alone);
    expect(backupFiles.files(POOL_ID)[0]).toMatchObject({ type: 'disk', image, domainId: '', states: [] });
    unlinkSync(at('appliance/vm.ovf'));
    const all = ['b.vmdk', 'appliance/own.vmdk', 'appliance/deep/below.vmdk'];
    expect(await listed()).toEqual([...alone.filter(name => !name.endsWith('.ovf')), ...all].sort());
  });

  test('an archive that another node writes is what it was, and is read when that ends', async () => {
    const grown = { ...summary, domainName: 'grown' };
    const busy = new VirtkeepError('file_busy', { file: 'a.tar', operation: 'o', kind: 'k' });
    writeFileSync(at('a.tar'), 'x');
    const backupFiles = new BackupFiles(read);
    await backupFiles.refresh(place(), { signal });
    writeFileSync(at('a.tar'), 'half of it');
    writeFileSync(at('b.tar'), 'x');
    read.mockRejectedValueOnce(busy).mockRejectedValueOnce(busy);
    await backupFiles.refresh(place(), { signal });
    expect(backupFiles.files()).toMatchObject([
      { id: BACKUP_ID, archiveId: BACKUP_ID, domainName: 'vm', size: 1n, damage: '' },
      { id: uuidV5(POOL_ID, 'b.tar'), archiveId: '', damage: busy.message },
    ]);
    read.mockResolvedValueOnce(grown).mockResolvedValueOnce({ ...grown, backupId: POOL_ID });
    await backupFiles.refresh(place(), { signal });
    expect(backupFiles.files()).toMatchObject([
      { id: BACKUP_ID, domainName: 'grown', size: 10n },
      { id: POOL_ID, domainName: 'grown', damage: '' },
    ]);
    expect(await backupFiles.refresh(place(), { signal })).toBe(false);
  });

  test('a file that a server would not give for a moment is read at the next look', async () => {
    writeFileSync(at('a.tar'), 'x');
    const backupFiles = new BackupFiles(read);
    const failed = new VirtkeepError('io_failed', { operation: 'reading', path: 'a.tar', reason: 'EIO' });
    read.mockRejectedValueOnce(failed);
    await backupFiles.refresh(place(), { signal });
    expect(backupFiles.files()).toMatchObject([{ archiveId: '', damage: failed.message }]);
    // not at once: to try again and again would keep a disk busy that fails slowly
    while (!(await backupFiles.refresh(place(), { signal })));
    expect(backupFiles.files()).toMatchObject([{ id: BACKUP_ID, damage: '' }]);
    expect(await backupFiles.refresh(place(), { signal })).toBe(false);
  });

  test.each([
    ['an error of ours', new VirtkeepError('timed_out', { operation: 'reading', seconds: 60 })],
    ['one of Node', Object.assign(new Error('ESTALE'), { code: 'ESTALE' })],
  ])('%s that has passed is no damage', async (_what, error) => {
    writeFileSync(at('a.tar'), 'x');
    const backupFiles = new BackupFiles(read);
    read.mockRejectedValueOnce(error);
    await backupFiles.refresh(place(), { signal });
    while (!(await backupFiles.refresh(place(), { signal })));
    expect(backupFiles.files()).toMatchObject([{ id: BACKUP_ID, damage: '' }]);
  });

  test('what could not be unpacked stays so until somebody asks for it again', async () => {
    writeFileSync(at('s.tar.zst'), 'x');
    const failed = new VirtkeepError('io_failed', { operation: 'reading', path: 's', reason: 'EIO' });
    let isFailing = true;
    const backupFiles = new BackupFiles(async (_path, _signal, isThorough) => {
      if (isThorough && isFailing) throw failed;
      return isThorough ? { ...summary, backupId: '' } : null;
    });
    const damage = () => backupFiles.files().map(file => file.damage);
    await backupFiles.refresh(place(), { signal, fresh: true, thorough: true });
    await backupFiles.refresh(place(), { signal });
    expect(damage()).toEqual([failed.message]);
    isFailing = false;
    await backupFiles.refresh(place(), { signal, fresh: true, thorough: true });
    expect(damage()).toEqual(['']);
  });

  test('what must be unpacked to be read is so only when asked for, and once', async () => {
    writeFileSync(at('s.tar.zst'), 'x');
    const thorough = jest.fn(async (_path: string, _signal: AbortSignal, isThorough: boolean) =>
      isThorough ? { ...summary, backupId: '' } : null,
    );
    const backupFiles = new BackupFiles(thorough);
    const told = () => backupFiles.files().map(({ domainName, damage }) => domainName || damage);
    await backupFiles.refresh(place(), { signal });
    await backupFiles.refresh(place(), { signal });
    expect(told()).toEqual(['']);
    await backupFiles.refresh(place(), { signal, fresh: true, thorough: true });
    expect(told()).toEqual(['vm']);
    const deep = () => thorough.mock.calls.filter(([, , isThorough]) => isThorough).length;
    expect(deep()).toBe(1);
    // a node that is back, and a scan that a user asks for again
    await backupFiles.refresh(place(), { signal });
    await backupFiles.refresh(place(), { signal, fresh: true, thorough: true });
    expect(told()).toEqual(['vm']);
    expect(deep()).toBe(1);
    utimesSync(at('s.tar.zst'), 1, 1);
    await backupFiles.refresh(place(), { signal });
    expect(told()).toEqual(['']);
    thorough.mockImplementation(async (_path, _signal, isThorough) => {
      if (isThorough) throw new VirtkeepError('archive_damaged', { path: 's', reason: 'cut' });
      return null;
    });
    await backupFiles.refresh(place(), { signal, fresh: true, thorough: true });
    await backupFiles.refresh(place(), { signal, fresh: true, thorough: true });
    await backupFiles.refresh(place(), { signal });
    expect(told()).toEqual([expect.stringContaining('cut')]);
    expect(deep()).toBe(2);
  });

  test('a copy gets an id of its own, the original keeps its', async () => {
    writeFileSync(at('z-original.tar'), 'x');
    const born = (name: string) => statSync(at(name), { bigint: true }).birthtimeNs;
    // the file system's clock ticks a few hundred times a second
    do {
      rmSync(at('a-copy.tar'), { force: true });
      copyFileSync(at('z-original.tar'), at('a-copy.tar'));
    } while (born('a-copy.tar') <= born('z-original.tar'));
    const backupFiles = new BackupFiles(read);
    await backupFiles.refresh(place(), { signal });
    expect(backupFiles.files().map(file => file.id)).toEqual([uuidV5(POOL_ID, 'a-copy.tar'), BACKUP_ID]);
    unlinkSync(at('z-original.tar'));
    await backupFiles.refresh(place(), { signal });
    expect(backupFiles.files().map(file => file.id)).toEqual([BACKUP_ID]);
  });

  describe('a file that is read while others change it', () => {
    const path = () => join(dir, 'backups', 'a.tar');
    /** One whose first reading ends when it is told to, with what stood there when it began. */
    const slowAtFirst = () => {
      const end = Promise.withResolvers<void>();
      const begun = Promise.withResolvers<void>();
      let reads = 0;
      const backupFiles = new BackupFiles(async () => {
        const first = ++reads === 1;
        begun.resolve();
        if (first) await end.promise;
        return { ...summary, manifestJson: first ? 'old' : 'new' };
      });
      return { backupFiles, begun: begun.promise, end: end.resolve };
    };
    beforeEach(() => {
      writeFileSync(path(), 'one');
    });

    test('and that is gone then is not listed', async () => {
      const { backupFiles, begun, end } = slowAtFirst();
      const slow = backupFiles.refresh({ id: POOL_ID, path: dir }, { signal });
      await begun;
      unlinkSync(path());
      await backupFiles.refresh({ id: POOL_ID, path: dir }, { signal });
      end();
      await slow;
      expect(backupFiles.files()).toEqual([]);
    });

    test('and that another reading found newer stays as that one found it', async () => {
      const { backupFiles, begun, end } = slowAtFirst();
      const slow = backupFiles.refresh({ id: POOL_ID, path: dir }, { signal });
      await begun;
      writeFileSync(path(), 'one and two');
      await backupFiles.refresh({ id: POOL_ID, path: dir }, { signal });
      end();
      await slow;
      expect(backupFiles.files()).toMatchObject([{ manifestJson: 'new', size: 11n }]);
    });

    test('and that nobody else looked at is looked at again', async () => {
      const { backupFiles, begun, end } = slowAtFirst();
      const slow = backupFiles.refresh({ id: POOL_ID, path: dir }, { signal });
      await begun;
      writeFileSync(path(), 'one and two');
      end();
      await slow;
      await backupFiles.refresh({ id: POOL_ID, path: dir }, { signal });
      expect(backupFiles.files()).toMatchObject([{ manifestJson: 'new', size: 11n }]);
    });
  });

  test('a pool without backups has none; an abort stops the reading', async () => {
    rmSync(join(dir, 'backups'), { recursive: true });
    const backupFiles = new BackupFiles(read);
    expect(await backupFiles.refresh(place(), { signal })).toBe(false);
    mkdirSync(join(dir, 'backups'));
    writeFileSync(at('a.tar'), 'x');
    const aborted = backupFiles.refresh(place(), { signal: AbortSignal.abort() });
    await expect(aborted).rejects.toEqual(expect.objectContaining({ msgKey: 'canceled' }));
  });
});
