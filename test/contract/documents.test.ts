/** The documents tell the truth about the tree: every file, folder and heading that they name is there, and the first page stays short. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { expect, test } from '@jest/globals';

const ROOT = normalize(join(import.meta.dirname, '../..'));
/** Not of the repository. */
const OTHERS = new Set(['.git', 'node_modules', '.lab', '.cache', 'dist', 'coverage']);
/** What a newcomer reads in one sitting. */
const MAX_WORDS = 1500;
const PATH = /^[\w.@{},*…-]+(\/[\w.@{},*…-]+)*\/?$/;
const SOURCE = /\w\.(ts|cjs|proto|md)$/;

const files = filesBelow('');
const folders = new Set(files.flatMap(path => above(path)));
const topLevel = new Set([...folders].filter(path => !path.includes('/')));
const documents = files.filter(path => path.endsWith('.md') && !path.startsWith('agent/node-libvirt/'));

/** Paths of all files of the repository, relative to its root. */
function filesBelow(folder: string): string[] {
  return readdirSync(join(ROOT, folder), { withFileTypes: true }).flatMap(entry => {
    const path = join(folder, entry.name);
    if (OTHERS.has(entry.name)) return [];
    return entry.isDirectory() ? filesBelow(path) : [path];
  });
}

function above(path: string): string[] {
  const folder = dirname(path);
  return folder === '.' ? [] : [folder, ...above(folder)];
}

/** `a/{b,c}.ts` → `a/b.ts`, `a/c.ts`. */
function expanded(path: string): string[] {
  const brace = /^(.*?)\{([^{}]*)\}(.*)$/.exec(path);
  if (!brace) return [path];
  const [, before = '', inner = '', after = ''] = brace;
  return inner.split(',').flatMap(part => expanded(before + part + after));
}

/** Whether a file or folder ends in this path; `*` stands for a part of a name. */
function isThere(path: string): boolean {
  const wanted = path.replace(/\/$/, '').replaceAll('.', '\\.').replaceAll('*', '[^/]*');
  const pattern = new RegExp(`${topLevel.has(path.split('/')[0] ?? '') ? '^' : '(^|/)'}${wanted}$`);
  return [...(path.endsWith('/') ? [] : files), ...folders].some(known => pattern.test(known));
}

/** Paths between backticks that can only be meant as ones of this tree. */
function namedPaths(text: string): string[] {
  const prose = text.replaceAll(/^```.*?^```/gms, '');
  return [...prose.matchAll(/`([^`\s]+)`/g)]
    .map(([, path = '']) => path)
    .filter(path => PATH.test(path) && !path.includes('…') && !path.includes('NAME'))
    .filter(path => SOURCE.test(path) || (path.includes('/') && topLevel.has(path.split('/')[0] ?? '')))
    .flatMap(expanded);
}

const anchorOf = (heading: string) =>
  heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, '')
    .replaceAll(' ', '-');

function isLinkGood(document: string, link: string): boolean {
  const [path = '', anchor] = link.split('#');
  const target = path === '' ? document : normalize(join(dirname(document), path));
  if (!existsSync(join(ROOT, target))) return false;
  if (anchor === undefined) return true;
  const headings = readFileSync(join(ROOT, target), 'utf8').matchAll(/^#+ (.*)$/gm);
  return [...headings].some(([, heading = '']) => anchorOf(heading) === anchor);
}

test.each(documents)('%s names what is there', document => {
  const text = readFileSync(join(ROOT, document), 'utf8');
  const links = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, link = '']) => link);
  expect({
    paths: namedPaths(text).filter(path => !isThere(path)),
    links: links.filter(link => !/^[a-z]+:/.test(link) && !isLinkGood(document, link)),
  }).toEqual({ paths: [], links: [] });
});

test('every rule of the specification that is cited by its number is quoted', () => {
  const quoted = readFileSync(join(ROOT, 'docs/specification-rules.md'), 'utf8');
  const cited = files
    .filter(
      path => /\.(ts|md)$/.test(path) && !path.includes('/gen/') && path !== 'docs/specification-rules.md',
    )
    .flatMap(path => [
      ...readFileSync(join(ROOT, path), 'utf8').matchAll(
        /pecification(?:'s)?[ ,(]*(?:sections? )?(.{0,30})/g,
      ),
    ])
    .flatMap(([, what = '']) => what.match(/\b[1-9]\.[1-9]\b/g) ?? []);
  expect(new Set(cited).size).toBeGreaterThan(10);
  expect([...new Set(cited)].filter(rule => !quoted.includes(`\n| ${rule} |`))).toEqual([]);
});

test(`ARCHITECTURE.md has at most ${MAX_WORDS} words`, () => {
  const words = readFileSync(join(ROOT, 'ARCHITECTURE.md'), 'utf8').split(/\s+/).filter(Boolean);
  expect(words.length).toBeLessThanOrEqual(MAX_WORDS);
});
