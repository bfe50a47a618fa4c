/** What a browser or program calls itself, as short as people need it to tell their logins apart. */
import { withoutHidden } from '@virtkeep/shared/hidden-characters';

const MAX_LENGTH = 60;
/** Of the header: what is longer is no browser's, and patterns take their time with it. */
const MOST_READ = 512;
/** In this order: most of them name others beside themselves. */
const BROWSERS: readonly [RegExp, string][] = [
  [/\bEdg(?:A|iOS)?\/(\d+)/, 'Edge'],
  [/\bOPR\/(\d+)/, 'Opera'],
  [/\b(?:Firefox|FxiOS)\/(\d+)/, 'Firefox'],
  [/(?:Chrome|Chromium|CriOS)\/(\d+)/, 'Chrome'],
  [/\bVersion\/(\d+).* Safari\//, 'Safari'],
];
const SYSTEMS: readonly [RegExp, string][] = [
  [/\bAndroid\b/, 'Android'],
  [/\b(?:iPhone|iPad)\b/, 'iOS'],
  [/\bWindows\b/, 'Windows'],
  [/\bMac OS X\b/, 'macOS'],
  [/\bCrOS\b/, 'ChromeOS'],
  [/\bLinux\b/, 'Linux'],
];

/** `Firefox 145, Linux` of a browser, `curl/8.14.1` of a program. @param header the header `User-Agent`; anybody may write anything there */
export function clientName(header: string): string {
  const agent = header.slice(0, MOST_READ);
  const browser = BROWSERS.map(([pattern, name]) => [name, pattern.exec(agent)?.[1]] as const).find(
    ([, version]) => version !== undefined,
  );
  if (browser === undefined) return withoutHidden(agent).trim().split(' ')[0]!.slice(0, MAX_LENGTH);
  const system = SYSTEMS.find(([pattern]) => pattern.test(agent))?.[1];
  const name = `${browser[0]} ${browser[1]}`.slice(0, MAX_LENGTH);
  return system === undefined ? name : `${name}, ${system}`;
}
