/** node peers/load.mjs NAME DIRECTORY */
const [name, directory] = process.argv.slice(2);
const { load } = await import(`./${name}.mjs`);
await load(directory);
