export default async function removeServer() {
  await globalThis.testPostgres?.remove();
}
