/** Which file beside the descriptor a `<File>` means. What it names comes from anybody, and is opened by root. */

export interface HrefPaths {
  /**
   * Relative paths of the package, the likeliest first: as decoded, and as written when that differs. Names of steps joined by
   * single slashes; no step is empty, `.` or `..`. Nothing follows links here: who opens them must not.
   */
  paths: string[];
  /** Why it cannot be used, for people; then there are no paths. */
  fault: string | null;
}

/** Linux has no longer path, and no file system a longer step. */
const MAX_PATH_BYTES = 4096;
const MAX_STEP_BYTES = 255;
const SCHEME = /^[a-z][a-z\d+.-]*:/i;
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
const CONTROL = /[\u0000-\u001f\u007f]/;

/** Percent-encoding is decoded once; a name with a percent sign that encodes nothing is taken as it stands. */
export function hrefPaths(href: string): HrefPaths {
  const decoded = decodedOnce(href);
  const forms = decoded === href ? [href] : [decoded, href];
  const fault = forms.map(faultOf).find(found => found !== null) ?? null;
  return fault === null ? { paths: forms.map(normal), fault } : { paths: [], fault };
}

function decodedOnce(href: string): string {
  try {
    return decodeURIComponent(href);
  } catch {
    return href;
  }
}

const steps = (path: string): string[] => path.split('/');

const normal = (path: string): string =>
  steps(path)
    .filter(step => step !== '' && step !== '.')
    .join('/');

function faultOf(path: string): string | null {
  if (normal(path) === '' || path.endsWith('/')) return 'it names no file';
  if (CONTROL.test(path)) return 'it holds a control character';
  if (path.includes('\\')) return 'it holds a backslash';
  if (path.startsWith('/')) return 'it is an absolute path';
  if (SCHEME.test(path)) return 'it is not a file of the package but an address';
  if (steps(path).includes('..')) return 'it leads out of the package';
  const isLong = steps(path).some(step => Buffer.byteLength(step) > MAX_STEP_BYTES);
  return isLong || Buffer.byteLength(path) > MAX_PATH_BYTES ? 'it is too long' : null;
}
