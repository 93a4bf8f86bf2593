package main

const oursName = "edgeway"
