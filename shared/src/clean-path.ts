/**
 * An absolute path without doubled slashes and steps that stay in place, so that two texts that name a file in the same way are one
 * text. `..` stays: behind a link it leads elsewhere than the text says. What is no absolute path stays as it is.
 */
export function cleanPath(path: string): string {
  return path.startsWith('/') ? path.replaceAll(/\/(?:\.?\/)+/g, '/') : path;
}
